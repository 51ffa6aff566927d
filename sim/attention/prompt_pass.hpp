#pragma once
/// Shows a group's prompt rows to everybody who asked for them: each block is computed once.
#include <cstddef>
#include <span>

#include "sim/attention/group_tensors.hpp"
#include "sim/attention/row_requirement.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::sim {

/// Who watches which lanes of the group, and what of their prompt.
struct Subscription {
  policy::PromptObserver* observer = nullptr;
  std::size_t first_lane = 0, n_lanes = 1;
  RowRequirement requirement{};
};

/// First prompt row that is computed when the last `rows` are wanted: the begin of a block, so that blocks,
/// and with them the last bits of every row, are the same whoever asked.
std::size_t first_prompt_row(const trace::Sequence& sequence, std::size_t rows);

/// Rows per block: enough to reuse the packed keys, few enough that they stay in cache for the observers.
inline constexpr std::size_t kPromptBlock = 64;

/// Calls observe_columns() of every subscription that sees columns, then observe() of every subscription, in
/// order of position per query head. Advances `progress` by the rows computed.
void replay_prompt(const GroupTensors& tensors, std::span<const Subscription> subscriptions,
                   Progress& progress);

}  // namespace kvsim::sim
