#pragma once
/// What the columns of a table that is read back hold.
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Whether a column holds text even where it looks like a number: names and budgets. The one list of them;
/// any other column holds text only if some field of it is no number.
bool is_text_key(std::string_view key);

/// A text field; nothing: undefined.
Value text_field(std::string field);
/// A finite number, whole ones as counts; nothing: not a number.
std::optional<Value> number_field(std::string_view field);

/// Checks that the columns of `expected` are there, in any order, and hold numbers unless is_text_key();
/// units and descriptions are taken from it. Throws Error(input) with row and column; `where` names the file.
void expect_columns(Records& records, const std::vector<ColumnInfo>& expected, const std::string& where);

}  // namespace kvsim::analysis
