#pragma once
#include "analysis/agreement/loop_agreement.hpp"

namespace kvsim::analysis {

std::vector<ColumnInfo> threshold_columns();
/// The value of every open measure up to which the open loop is trusted: of the cells (a policy at a budget)
/// within it, nearly all keep the full cache's accuracy. One half of the items chooses it, over all budgets,
/// as it bounds a loss and orders nothing; the other half is counted at each budget.
void add_thresholds(const RankedWorkload& of, std::vector<std::vector<Value>>& rows);

}  // namespace kvsim::analysis
