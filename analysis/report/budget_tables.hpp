#pragma once
/// The statistics of a study as people compare them: policies down, budgets across.
#include "analysis/report/evidence.hpp"
#include "analysis/report/sortable_table.hpp"

namespace kvsim::analysis {

// Captions name the cut. Each has no rows when its tables know nothing; rows begin with what is best in the
// middle budget.

/// Means with intervals, of every role; the best policy of a budget is marked.
SortableTable means_by_budget(const Evidence& evidence, const Metric& metric, const std::string& workload);
/// Means over all traces at several cuts, side by side within a budget; the best policy of each is marked.
SortableTable means_by_cut(const std::vector<Evidence>& cuts, const Metric& metric);
/// Rank of the mean with its interval.
SortableTable ranks_by_budget(const Evidence& evidence, const Metric& metric);
/// Paired difference to the best policy of the budget, its interval, on how many traces worse.
SortableTable differences_by_budget(const Evidence& evidence, const Metric& metric);

}  // namespace kvsim::analysis
