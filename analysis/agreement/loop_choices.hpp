#pragma once
#include "analysis/agreement/loop_agreement.hpp"

namespace kvsim::analysis {

std::vector<ColumnInfo> choice_columns();
/// The open measure with the highest mean of tau-b over budgets on one half of the items, and its tau-b on
/// the other half, at every budget, beside the best that could have been chosen there.
void add_choices(const RankedWorkload& of, std::vector<std::vector<Value>>& rows);

}  // namespace kvsim::analysis
