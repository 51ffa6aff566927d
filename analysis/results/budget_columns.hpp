#pragma once
/// A budget as numbers, beside its text: what can be sorted, drawn and compared without reading "5%".
#include <array>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// `budget_kind` (tokens, share or bytes) and `budget_number` (128, 0.05, 67108864), which stand behind
/// `budget` in every table that has both.
const std::vector<ColumnInfo>& budget_columns();

/// Their fields for a budget as it was given; undefined without one. Throws Error(usage) for text that is no
/// budget.
std::array<Value, 2> budget_fields(const std::string& budget);

/// The same table with these columns, if it has a column `budget` and not yet its numbers.
Records with_budget_numbers(Records records);

}  // namespace kvsim::analysis
