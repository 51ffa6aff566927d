// Splits so that the most of the eviction's own score is kept, or the least of an oracle's future attention
// lost.
#include <algorithm>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/oracles/optimal_retention.hpp"
#include "policies/parts/splits/token_gains.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::best_split {
namespace {

/// What each further token adds to the lane's share of its scores that are not protected.
std::vector<double> shares(TokenGains gains) {
  if (!gains.above.empty() && !(gains.above.back() >= 0))
    usage_error("normalise=true needs scores that are not negative", "best_split",
                "Another eviction, or normalise=false.");
  const double sum = std::accumulate(gains.above.begin(), gains.above.end(), gains.chosen_at_floor);
  for (double& x : gains.above) x = sum > 0 ? x / sum : 0.0;
  return std::move(gains.above);
}

class BestSplit final : public Allocation {
 public:
  explicit BestSplit(const Params& params)
      : per_layer_(params.is("scope", "layer")), normalise_(params.flag("normalise")) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const bool by_losses = !request.losses.empty();
    if ((by_losses ? request.losses : request.scores).size() != request.n_lanes())
      bug("best_split needs the scores, or the losses, of every lane");
    if (by_losses && normalise_)
      usage_error("normalise=true is of scores, and an oracle has none: what it loses is attention",
                  "best_split", "normalise=false.");
    const std::size_t heads = per_layer_ || request.shared ? request.n_kv_heads : 1;
    std::vector<std::vector<double>> gains;
    for (std::size_t lane = 0; lane < request.n_lanes(); ++lane) {
      const std::size_t layer = lane / request.n_kv_heads;
      std::vector<double> more =
          by_losses    ? gains_of(std::span(request.losses[lane]).subspan(headroom(request, layer).floor - 1))
          : normalise_ ? shares(token_gains(request, request.scores[lane], layer))
                       : token_gains(request, request.scores[lane], layer).above;
      if (lane % heads == 0) gains.emplace_back(more.size());
      for (std::size_t i = 0; i < more.size(); ++i) gains.back()[i] += more[i];
    }
    const Rooms room = rooms(request, gains.size() / request.n_layers);
    const std::size_t n = room.total();
    std::vector<std::size_t> above = counts_of_largest(gains, n, request.prompt);
    spread(above, n - std::accumulate(above.begin(), above.end(), std::size_t{0}), room.most());
    return heads == 1 ? per_unit(request, above) : per_layer(request, above);
  }

 private:
  bool per_layer_, normalise_;
};

/// A heap over all lanes, or layers, spends the budget.
Cost cost_of(const Params&, const CostShape& shape) {
  return gains_cost(shape, shape.n_layers * shape.kv_heads);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "best_split",
      .summary =
          "the split over lanes, or layers, that keeps the largest sum of the eviction's own scores; of an "
          "oracle, that loses least",
      .details =
          "Every lane keeps what the eviction protects and its best scores, so the next token of a lane adds "
          "less than the one before; taking the best next token of all lanes until the budget is spent is "
          "then the best split there is (of equal ones the first lane's). A bound on what any allocation can "
          "do for this eviction, in the eviction's measure: beside it stands what one of the published rules "
          "achieves. Where protection grows with a lane's budget (h2o's recent share), tokens that it takes "
          "are averaged with the next ones, and the split may miss the best by less than such a run of them. "

          "For an oracle that knows what each lane loses at every budget (optimal, future_mean) a token's "
          "gain is the attention it saves, and the split is the best there is for that oracle: "
          "optimal+best_split is the least loss of every schedule and every split of the total, "
          "future_mean+best_split of those that choose once and append what is generated. A lane has at most "
          "the prompt's length and goes on evicting there: what allocations that never evict from some lanes "
          "(exempt, retrieval_heads, d2o_layers) can reach is bounded by append_only alone.",
      .params = {choice_param("scope", "head", {"head", "layer"}, "who gets a number of its own"),
                 flag_param("normalise", "false",
                            "every lane's scores divided by the sum of those that are not protected")},
      .cost = cost_of,
      .rule = AllocationRule{.uses_scores = true, .uses_losses = true, .make = made<BestSplit>}};
}

}  // namespace kvsim::policy::best_split
