// The schedule no permanent eviction can beat.
#include "policies/api/score_policy.hpp"
#include "policies/parts/optimal_retention.hpp"
#include "policies/parts/planned_oracle.hpp"

namespace kvsim::policy {
namespace {

class Optimal final : public PlannedOracle {
 public:
  Optimal() : PlannedOracle(kWholeFuture) {}

 private:
  RetentionPlan plan(const MassAhead& future, std::size_t budget) const override {
    return optimal_retention(future, budget);
  }
};

}  // namespace

PolicySpec optimal_spec() {
  return {
      .name = "optimal",
      .kind = Kind::eviction,
      .summary = "the exact best of all schedules that never take a token back",
      .paper =
          "The assignment is solved by Kuhn, The Hungarian Method for the Assignment Problem, Naval Research "
          "Logistics Quarterly 1955, with the shortest paths of Jonker and Volgenant, A Shortest Augmenting "
          "Path Algorithm for Dense and Sparse Linear Assignment Problems, Computing 1987",
      .details =
          "Knows every later row. Among all ways to hold at most B tokens, with each generated token "
          "resident "
          "at its own step and nobody returning, it takes one that retains the most attention summed over "
          "steps, averaged over the unit's query heads: the least attention loss that permanent eviction "
          "can have at this budget. Only a method that reads tokens it had dropped before can lose less; "
          "attention_loss_oracle is the bound for those. Belady's rule, dropping what is used furthest in "
          "the future, does not apply: attention is a share at every step, and a miss is not refetched.",
      .params = {unit_param("lane")},
      .layer_unit = unit_is_layer,
      .make_oracle = [](const Params&, const Unit&) { return std::make_unique<Optimal>(); }};
}

}  // namespace kvsim::policy
