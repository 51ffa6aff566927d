// Greedy eviction that knows the future.
#include "policies/api/score_policy.hpp"
#include "policies/parts/oracles/planned_oracle.hpp"

namespace kvsim::policy::future_mass {
namespace {

class FutureMass final : public PlannedOracle {
 public:
  explicit FutureMass(const Params& params) : PlannedOracle(horizon_of(params)) {}

 private:
  RetentionPlan plan(const MassAhead& future, std::size_t budget) const override {
    return future_greedy(future, budget);
  }
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "future_mass",
      .summary = "drops what is attended least from now on; greedy, not optimal",
      .details =
          "A token that finds the cache full takes the place of the one with the least attention still to "
          "come, summed over the next `horizon` steps and averaged over the unit's query heads; of equals "
          "the oldest leaves. At cut prompt the last prompt row, which is asked again, is the first step. "
          "What heavy-hitter policies try to guess. It is not the best permanent eviction: it may hold a "
          "slot for a token that is needed late, and lose more until then.",
      .params = {horizon_param(), unit_param("lane")},
      .rule = OracleRule{.make = made<FutureMass>}};
}

}  // namespace kvsim::policy::future_mass
