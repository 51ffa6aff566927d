#pragma once
/// Says what is wrong with a command line, with the nearest valid spelling.
#include <CLI/CLI.hpp>
#include <string>

namespace kvsim::tools {

/// `error`: what app.parse() threw, not being a call for help or version.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace kvsim::tools
