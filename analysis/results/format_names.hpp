#pragma once
/// Names of formats, as --format takes them and as names of files end.
#include <string>
#include <vector>

namespace kvsim::analysis {

/// What parse_format() knows.
std::vector<std::string> format_names();

}  // namespace kvsim::analysis
