#pragma once
/// Attention rows of a lane, block by block: long traces are never held as a whole.
#include <functional>

#include "sim/attention/row_block.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::sim {

/// Calls `look` for consecutive blocks of the rows at positions [first, end) of a lane (a group of one). The
/// queries must be stored. Advances `progress` by lane_rows_work().
void for_lane_rows(const GroupTensors& tensors, std::size_t first, std::size_t end, Progress& progress,
                   const std::function<void(const RowBlock&)>& look);

/// Rows of so many positions, over the lane's query heads.
std::uint64_t lane_rows_work(const trace::Model& model, std::size_t positions);

}  // namespace kvsim::sim
