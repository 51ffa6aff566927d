#pragma once
#include <vector>

#include "analysis/requests/hit_rows.hpp"

namespace kvsim::analysis {

/// Rows of all requests and of their last half, from grid.sample. What a cache without limits hits is known
/// of the trace and of the sample, and other hits are to it as in the sample. Throws Error(usage) for parts,
/// for residencies, and for a sample without requests.
std::vector<HitRow> sampled_hit_rows(const requests::RequestTrace& trace, const HitGrid& grid,
                                     Progress* progress);

}  // namespace kvsim::analysis
