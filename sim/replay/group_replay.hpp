#pragma once
/// Replay of the lanes that are worked on together: one lane, or a layer's lanes when a policy shares a set
/// over them.
///
///   read K and V once
///   for blocks of prompt rows:   compute them once; every eviction group that ranks the prompt observes
///   every eviction group ranks; every cell takes its prompt's positions
///   for blocks of prompt rows:   once more for the eviction groups that take the prompt token by token
///   for blocks of measured steps:  compute the rows once
///     for every step and cell:   who leaves, the token joins, measure against the true row, the policy
///                                observes
///     for every cell:            the block's outputs over what was held, one GEMM
#include <cstdint>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/replay/bounds.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// Fills outcome.cells[*].lanes (and resident intervals) and `curves` of the group's lanes; they must be
/// sized already. Advances `progress` by group_work().
void replay_lane_group(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                       LaneGroup group, Outcome& outcome, std::vector<LaneCurves>& curves,
                       Progress& progress);

/// Query rows a group computes, prompt and decode: the unit of progress.
std::uint64_t group_work(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                         LaneGroup group);

/// Most bytes a group of so many lanes holds at once, besides what policies hold.
std::uint64_t group_bytes(const trace::Sequence& sequence, const Plan& plan, std::uint32_t n_lanes);

}  // namespace kvsim::sim
