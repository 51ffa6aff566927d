#pragma once
/// The page of a view: view_body.html, view_style.css and view_script.js, compiled in.
#include <string_view>

namespace kvsim::analysis {

std::string_view view_body();
std::string_view view_style();
std::string_view view_script();

}  // namespace kvsim::analysis
