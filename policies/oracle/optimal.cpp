// The best schedule of a lane that holds no more than its budget and never readmits a token.
#include <optional>

#include "policies/api/score_policy.hpp"
#include "policies/parts/oracles/optimal_retention.hpp"
#include "policies/parts/oracles/planned_oracle.hpp"

namespace kvsim::policy::optimal {
namespace {

class Optimal final : public PlannedOracle {
 public:
  Optimal() : PlannedOracle(kWholeFuture) {}

  std::vector<double> losses() const override {
    std::vector<double> out = schedules_->losses();
    out.resize(future().prompt(), 0.0);
    return out;
  }

 private:
  void prepare(const MassAhead& future) override { schedules_.emplace(future); }
  RetentionPlan plan(const MassAhead& future, std::size_t budget) const override {
    return schedules_->plan(future, budget);
  }

  std::optional<OptimalRetention> schedules_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "optimal",
      .summary = "the exact best of all schedules of a lane that never take a token back",
      .paper =
          "The assignment is solved by Kuhn, The Hungarian Method for the Assignment Problem, Naval Research "
          "Logistics Quarterly 1955, with the shortest paths of Jonker and Volgenant, A Shortest Augmenting "
          "Path Algorithm for Dense and Sparse Linear Assignment Problems, Computing 1987",
      .details =
          "Knows every later row. Among all ways to hold at most B tokens, with each generated token "
          "resident at its own step and no token readmitted, it takes one that retains the most attention "
          "summed over steps, averaged over the unit's query heads: the least attention loss that permanent "
          "eviction can have in a lane that holds B. Another split of the same total over lanes can lose "
          "less, and so can policies that hold more than B while generating (append_only, overshoot): "
          "optimal+best_split is the least loss of every schedule and every split, future_mean+best_split of "
          "those that only append. Methods that read tokens which they had dropped before are bounded by "
          "attention_loss_oracle alone. Belady's rule, dropping what is used furthest in the future, does "
          "not apply: attention is a share at every step, and a miss is not refetched.",
      .params = {unit_param("lane")},
      .rule = OracleRule{.loss_curve = [](const Params&) { return true; }, .make = made<Optimal>}};
}

}  // namespace kvsim::policy::optimal
