#pragma once
/// What any choice and any split could reach with what a cell holds in all lanes together: bounds over
/// allocations, where the per-lane oracles of LaneOutcome keep to the policy's own split.
#include <vector>

#include "policies/parts/mass_ahead.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// What the bounds ask of one lane.
struct LaneCurves {
  std::vector<double> importance{};  ///< w of its positions; empty if there is none
  /// [b - 1]: least loss of any schedule that holds at most b tokens, b = 1 .. P + S, and of any that holds b
  /// tokens of the prompt and every generated one, b = 1 .. P. Empty unless losses are to be bounded.
  std::vector<double> managed{}, append_only{};

  /// What is still to come of the lane, to the end.
  void set_future(const policy::MassAhead& future);
};

/// Fills in what cells say of all lanes together: holding and bounds. `lanes`: layer-major, and given up.
void add_bounds(const Request& request, std::vector<LaneCurves> lanes, Outcome& outcome);

/// Bytes that curves take, and what add_bounds() makes of them.
std::uint64_t bounds_bytes(std::uint64_t lanes, std::uint64_t prompt, std::uint64_t steps, bool losses);

}  // namespace kvsim::sim
