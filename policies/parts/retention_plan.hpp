#pragma once
/// A permanent eviction schedule of one unit, made with knowledge of the future.
#include <cstdint>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/parts/mass_ahead.hpp"

namespace kvsim::policy {

/// The contract of policies/api/eviction.hpp, played to the end: at most `budget` positions, a token resident
/// at its own step, a token that finds the unit full takes the slot of one that leaves before its query
/// attends, nobody returns. A last prompt row that is measured again finds `kept`, and its own key.
struct RetentionPlan {
  /// What the prompt leaves: min(budget, prompt) positions, ascending.
  std::vector<Position> kept;
  /// Per position: the step before which it leaves, so it is attended at steps < until; S: never leaves.
  /// Whenever a token finds the unit full, exactly one resident has until = that step.
  std::vector<std::uint32_t> until;
};

/// The plan that follows from the departures `until`. Room that the first step takes back from the prompt
/// (the budget's last slot, when the prompt fills it) goes to the position with the most mass ahead among
/// those that leave before step 0, the newest of equals.
RetentionPlan make_plan(const MassAhead& future, std::size_t budget, std::vector<std::uint32_t> until);

/// Attention on residents and on every query's own key, summed over all steps. `attention`: what the plan's
/// MassAhead was made from.
double retained_attention(const MatrixView& attention, const RetentionPlan& plan);

}  // namespace kvsim::policy
