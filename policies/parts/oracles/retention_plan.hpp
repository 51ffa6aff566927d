#pragma once
/// A permanent eviction schedule of one unit, made with knowledge of the future.
#include <cstdint>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/parts/oracles/mass_ahead.hpp"

namespace kvsim::policy {

/// The schedule follows the contract of policies/api/eviction.hpp to the end: at most `budget` positions, a
/// token is resident at its own step, a token that finds the unit full takes the slot of one that is evicted
/// before its query attends, and no token is readmitted. A last prompt row that is measured again finds
/// `kept`, and its own key.
struct RetentionPlan {
  /// The prompt positions that are kept: min(budget, prompt) of them, ascending.
  std::vector<Position> kept;
  /// Per position: the step before which it is evicted, so it is attended at steps < until; S: never evicted.
  /// Whenever a token finds the unit full, exactly one resident has until = that step.
  std::vector<std::uint32_t> until;
};

/// Makes the plan that follows from the eviction steps `until`. When the prompt fills the unit, the first
/// step takes a slot back from it; until then that last slot goes to the position with the most mass ahead
/// among those evicted before step 0, the newest of equals.
RetentionPlan make_plan(const MassAhead& future, std::size_t budget, std::vector<std::uint32_t> until);

}  // namespace kvsim::policy
