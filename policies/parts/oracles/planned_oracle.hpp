#pragma once
/// An oracle that plans every eviction before the first generated token arrives, and then follows the plan.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/oracle.hpp"
#include "policies/parts/oracles/mass_ahead.hpp"

namespace kvsim::policy {

// A permanent eviction schedule of one unit, made with knowledge of the future.

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

class PlannedOracle : public Oracle {
 public:
  void set_future(const Future& future) final;
  void finish_prompt(const Prompt& /*prompt*/) final {}
  Start start(std::size_t budget) const final;

 protected:
  explicit PlannedOracle(std::size_t horizon) : horizon_(horizon) {}
  /// Comes before any plan and computes what the plans of all budgets share.
  virtual void prepare(const MassAhead& /*future*/) {}

  /// Valid after set_future().
  const MassAhead& future() const { return future_.value(); }
  virtual RetentionPlan plan(const MassAhead& future, std::size_t budget) const = 0;

 private:
  std::size_t horizon_, origin_ = 0;
  std::optional<MassAhead> future_;
};

// Greedy eviction that knows the future: a token that finds the unit full evicts the resident that is
// attended least from then on. In practice a strong bound, but not the best schedule: see
// optimal_retention.hpp.

/// Evicts argmin_j of the attention that j is still to receive within the horizon of `future`; of equals the
/// oldest. budget >= 1, else Error (bug).
RetentionPlan future_greedy(const MassAhead& future, std::size_t budget);

}  // namespace kvsim::policy
