#pragma once
/// Says what is wrong with a command line, with the nearest valid spelling.
#include <CLI/CLI.hpp>
#include <string>

namespace kvsim::tools {

/// `error`: what app.parse() threw, not being a call for help or version.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

/// An option that names an output is refused without a name, instead of meaning nothing.
void require_names_of_outputs(CLI::App& app);

}  // namespace kvsim::tools
