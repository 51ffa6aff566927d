#pragma once
/// Replays the prompt of a lane group to all observers at once, so that each block of rows is computed once.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>

#include "sim/attention/group_tensors.hpp"
#include "sim/attention/row_block.hpp"
#include "sim/attention/row_requirement.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::sim {

/// An observer, the lanes of the group that it observes, and the rows that it requires. With an empty
/// requirement it gets finish_prompt() only.
struct Subscription {
  policy::PromptObserver* observer = nullptr;
  std::size_t first_lane = 0, n_lanes = 1;
  RowRequirement requirement{};
};

/// Returns the first prompt row to compute when the last `rows` are required. It is the first row of a block,
/// so that blocks, and with them the last bits of every row, do not depend on how many rows are required.
std::size_t first_prompt_row(const trace::Sequence& sequence, std::size_t rows);

/// Rows per block: enough to reuse the packed keys, few enough that the rows are still in the CPU cache when
/// observers read them.
inline constexpr std::size_t kPromptBlock = 64;

/// Calls observe_columns() of every observer that requires columns, then observe() in order of position per
/// query head, then finish_prompt() of every observer. They see what the layer holds when the prompt ends,
/// from GroupTensors::first_held() on (policies/api/eviction.hpp). Advances `progress` by the rows computed.
void replay_prompt(const GroupTensors& tensors, std::span<const Subscription> subscriptions,
                   Progress& progress);

// Computes the attention rows of a lane block by block, so that a long trace's rows are never in memory all
// at once.

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
