#pragma once
/// Computes the attention rows of a lane block by block, so that a long trace's rows are never in memory all
/// at once.
#include <functional>

#include "sim/attention/row_block.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::sim {

/// Calls `look` for consecutive blocks of the rows at positions [first, end) of a lane (a group of one). The
/// trace must store the queries of these positions. Advances `progress` by lane_rows_work().
void for_lane_rows(const GroupTensors& tensors, std::size_t first, std::size_t end, Progress& progress,
                   const std::function<void(const RowBlock&)>& look);

/// Returns the number of rows of `positions` positions over the query heads of a lane.
std::uint64_t lane_rows_work(const trace::Model& model, std::size_t positions);

}  // namespace kvsim::sim
