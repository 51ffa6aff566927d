#pragma once
/// SnapKV's score (arXiv 2404.14469): what the last prompt rows attend, smoothed along positions.
#include <vector>

#include "policies/api/score_policy.hpp"
#include "policies/parts/column_sums.hpp"
#include "policies/parts/pooling.hpp"

namespace kvsim::policy {

/// `sums`: over the last `window` rows of a prompt of `length`. Positions before the window: their means over
/// these rows, pooled within each query head, then reduced over the heads. The window's own are 0.
std::vector<double> window_score(const ColumnSums& sums, std::size_t window, std::size_t length,
                                 const Pooling& pooling, Group group);

}  // namespace kvsim::policy
