#pragma once
#include <string_view>

namespace kvsim::analysis {

/// Whether a text of a csv file, behind apostrophes, begins as formulas of spreadsheets do and is no number.
bool is_formula(std::string_view text);

}  // namespace kvsim::analysis
