#pragma once
/// Replays the lanes that are processed together: one lane, or all lanes of a layer when a policy shares one
/// set over them or the trace stores output weights.
///
///   read K and V once
///   for blocks of prompt rows:     compute them once; eviction groups that rank the prompt observe
///   every eviction group ranks its prompt; every cell starts with the prompt positions that it keeps
///   for blocks of prompt rows:     once more for the eviction groups that take the prompt token by token
///   for blocks of measured steps:  compute the rows once
///     for every step and cell:     evict, admit the token, measure against the true row; the policy observes
///     for every cell:              the block's outputs over the resident positions, one GEMM
#include <cstdint>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/replay/bounds.hpp"
#include "sim/replay/idle_parts.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// Fills outcome.cells[*].lanes (and resident intervals), `curves` and `idle` (by cell, then lane) of the
/// group's lanes, which the caller has sized. Advances `progress` by group_work().
void replay_lane_group(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                       LaneGroup group, Outcome& outcome, std::vector<LaneCurves>& curves,
                       std::vector<std::vector<IdleLane>>& idle, Progress& progress);

/// Returns the query rows that a group computes, prompt and decode: the unit of progress.
std::uint64_t group_work(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                         LaneGroup group);

/// Says that a group will be replayed soon, so that the system fetches what it reads from the disk.
void will_replay(const trace::Sequence& sequence, const Request& request, const Plan& plan, LaneGroup group);

/// Returns the most bytes that a group of `n_lanes` lanes takes at once, besides those of policies.
std::uint64_t group_bytes(const trace::Sequence& sequence, const Plan& plan, std::uint32_t n_lanes);

}  // namespace kvsim::sim
