#pragma once
/// Computes what any choice of positions and any split over lanes could reach with as many tokens as a cell
/// has in all lanes together. These are bounds over allocations; the per-lane oracles of LaneOutcome keep the
/// policy's own split.
#include <vector>

#include "policies/parts/oracles/mass_ahead.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// What the bounds need of one lane.
struct LaneCurves {
  std::vector<double> importance{};  ///< w of its positions; empty if there is none
  /// [b - 1]: the least loss of any schedule with at most b resident tokens, b = 1 .. P + S, and of any with
  /// b resident prompt tokens and every generated token, b = 1 .. P. Empty unless losses are bounded.
  std::vector<double> managed{}, append_only{};

  /// Computes `managed` and `append_only` from the attention of all measured steps of the lane.
  void set_future(const policy::MassAhead& future);
};

/// Fills in the holding and the bounds of every cell, which are over all lanes together. `lanes` is
/// layer-major and consumed.
void add_bounds(const Request& request, std::vector<LaneCurves> lanes, Outcome& outcome);

/// Returns the bytes that the curves take, together with what add_bounds() derives from them.
std::uint64_t bounds_bytes(std::uint64_t lanes, std::uint64_t prompt, std::uint64_t steps, bool losses);

}  // namespace kvsim::sim
