// Keeps what is above one threshold, in whichever layer and head it stands.
#include <algorithm>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/splits/token_gains.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::one_threshold {
namespace {

class OneThreshold final : public Allocation {
 public:
  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.scores.size() != request.n_lanes()) bug("one_threshold needs the scores of every lane");
    const Rooms room = rooms(request, request.units_per_layer());
    std::vector<std::vector<double>> gains;
    for (std::size_t unit = 0; unit < room.of.size(); ++unit) {
      const std::size_t layer = unit / request.units_per_layer(),
                        lane = layer * request.n_kv_heads + unit % request.units_per_layer();
      gains.push_back(token_gains(request, request.scores[lane], layer).above);
    }
    const std::vector<std::size_t> most = room.most();
    std::vector<std::size_t> above = counts_of_largest(gains, room.total(), *std::ranges::max_element(most));
    std::size_t rest = room.total();
    for (const std::size_t tokens : above) rest -= tokens;
    spread(above, rest, most);
    return per_unit(request, above);
  }
};

/// The sorted lists of all layers are merged.
Cost cost_of(const Params&, const CostShape& shape) {
  return gains_cost(shape, shape.n_layers * shape.kv_heads);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "one_threshold",
      .summary = "all layers and heads compete for the budget by the eviction's own scores",
      .paper =
          "Kim, Kim, Kwon, Lee, Yun, Song, KVzip, NeurIPS 2025, https://arxiv.org/abs/2505.23416; layer form of "
          "DefensiveKV, https://arxiv.org/abs/2510.13334",
      .details =
          "Above the eviction's floor the best scores of all lanes of the model together, those of what it "
          "protects left out, are counted per lane, of equal ones the first lane's. In its own measure, "
          "the sum of scores kept, no other split keeps more. It suits scores that mean the same in every "
          "layer.",
      .departures = {{"authors' code: a head may keep nothing, and in kvpress nothing but sinks",
                      "every lane keeps its floor: what is protected, and one token more"}},
      .cost = cost_of,
      .rule = AllocationRule{.uses_scores = true, .make = made<OneThreshold>}};
}

}  // namespace kvsim::policy::one_threshold
