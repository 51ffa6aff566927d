#pragma once
/// Manual pages in roff.
#include <string>
#include <vector>

#include "tools/printing/command_line.hpp"

namespace kvsim::tools {

/// "kvsim-cost-fit" of "kvsim cost fit": a page's name, without its section.
std::string page_name(const std::string& command);
/// The page of one command, for section 1. `all`: among which those below it are.
std::string manual_page(const DescribedCommand& command, const std::vector<DescribedCommand>& all);

}  // namespace kvsim::tools
