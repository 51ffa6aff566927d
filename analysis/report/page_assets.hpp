#pragma once
/// What makes the page of a report look and work: page_style.css and page_script.js, compiled in.
#include <string_view>

namespace kvsim::analysis {

std::string_view page_style();
std::string_view page_script();

}  // namespace kvsim::analysis
