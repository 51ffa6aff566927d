#pragma once
/// Shows a group's prompt rows to everybody who asked for them: each block is computed once.
#include <cstddef>
#include <span>

#include "sim/attention/group_tensors.hpp"
#include "sim/attention/viewing.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::sim {

/// Who watches which lanes of the group, and what of their prompt.
struct Watcher {
  policy::PromptObserver* observer = nullptr;
  std::size_t first_lane = 0, n_lanes = 1;
  Viewing viewing{};
};

/// First prompt row that is computed when the last `rows` are wanted: the begin of a block, so that blocks,
/// and with them the last bits of every row, are the same whoever asked.
std::size_t first_prompt_row(const trace::Sequence& sequence, std::size_t rows);

/// Rows per block: enough to reuse the packed keys, few enough that they stay in cache for the observers.
inline constexpr std::size_t kPromptBlock = 64;

/// Calls observe_columns() of every watcher that sees columns, then observe() of every watcher, in order of
/// position per query head. Advances `progress` by the rows computed.
void show_prompt(const GroupTensors& tensors, std::span<const Watcher> watchers, Progress& progress);

}  // namespace kvsim::sim
