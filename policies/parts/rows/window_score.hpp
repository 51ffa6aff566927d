#pragma once
/// SnapKV's score (arXiv 2404.14469): the attention of the last prompt rows, smoothed along positions.
#include <vector>

#include "policies/api/score_policy.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::policy {

/// `sums`: over the last `window` rows of a prompt of `length`. Returns, for positions before the window,
/// their means over these rows, pooled within each query head, then reduced over the heads; for the window's
/// own positions 0.
std::vector<double> window_score(const ColumnSums& sums, std::size_t window, std::size_t length,
                                 const Pooling& pooling, Group group);

}  // namespace kvsim::policy
