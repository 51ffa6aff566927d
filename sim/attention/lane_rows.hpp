#pragma once
/// Computes the attention rows of a lane block by block, so that a long trace's rows are never in memory all
/// at once.
#include <algorithm>
#include <functional>

#include "sim/attention/prompt_pass.hpp"
#include "sim/attention/row_block.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::sim {

/// Returns the number of rows of `positions` positions over the query heads of a lane.
inline std::uint64_t lane_rows_work(const trace::Model& model, std::size_t positions) {
  return std::uint64_t{model.group()} * positions;
}

/// Calls `look` for consecutive blocks of the rows at positions [first, end) of a lane (a group of one). The
/// trace must store the queries of these positions. Advances `progress` by lane_rows_work().
inline void for_lane_rows(const GroupTensors& tensors, std::size_t first, std::size_t end, Progress& progress,
                          const std::function<void(const RowBlock&)>& look) {
  RowBlock block(tensors);
  for (std::size_t n; first < end; first += n) {
    progress.check();
    n = std::min(kPromptBlock, end - first);
    block.compute(first, n);
    look(block);
    progress.advance(lane_rows_work(tensors.sequence().model(), n));
  }
}

}  // namespace kvsim::sim
