#pragma once
/// Manual pages in roff.
#include <CLI/CLI.hpp>
#include <string>

namespace kvsim::tools {

/// "kvsim-cost-fit": a page's name, without its section.
std::string page_name(const CLI::App& command);
/// The page of one command, for section 1.
std::string manual_page(const CLI::App& command);

}  // namespace kvsim::tools
