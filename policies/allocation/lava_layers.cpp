// Gives more to layers whose scores are spread widely, and lets their heads compete.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/splits/token_gains.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::lava_layers {
namespace {

/// Entropy of the layer's scores over all positions that are not protected, as shares of their sum; 1 is the
/// entropy of equal ones.
double evenness(const AllocationRequest& request, std::size_t layer, std::size_t floor) {
  double sum = 0, weighed = 0;
  std::size_t count = 0;
  for (std::size_t head = 0; head < request.units_per_layer(); ++head) {
    const std::vector<double>& scores = request.scores[layer * request.n_kv_heads + head];
    const Protection held = request.protection ? request.protection(floor, scores.size()) : Protection{};
    for (std::size_t j = held.sinks; j + held.window < scores.size(); ++j) {
      if (!(scores[j] >= 0))
        usage_error("needs scores that are not negative", "lava_layers", "Another eviction.");
      ++count;
      sum += scores[j];
      if (scores[j] > 0) weighed += scores[j] * std::log(scores[j]);
    }
  }
  return sum > 0 && count > 1 ? (std::log(sum) - weighed / sum) / std::log(static_cast<double>(count)) : 0;
}

class LavaLayers final : public Allocation {
 public:
  explicit LavaLayers(const Params& params) : alpha_(params.real("alpha")) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.scores.size() != request.n_lanes()) bug("lava_layers needs the scores of every lane");
    const std::size_t heads = request.units_per_layer();
    const Rooms room = rooms(request);
    std::vector<double> weights;
    std::vector<std::size_t> most;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer)
      most.push_back(room.of[layer].most * heads);
    const bool scarce = room.total() * heads < std::accumulate(most.begin(), most.end(), std::size_t{0});
    for (std::size_t layer = 0; layer < request.n_layers; ++layer)
      weights.push_back(scarce ? std::max(0.0, evenness(request, layer, room.of[layer].floor)) : 0);
    const std::vector<std::size_t> totals = shared_out(weights, room.total() * heads, most);
    std::vector<std::size_t> above;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      std::vector<std::vector<double>> gains;
      for (std::size_t head = 0; head < heads; ++head)
        gains.push_back(token_gains(request, request.scores[layer * request.n_kv_heads + head], layer).above);
      const std::vector<std::size_t> of_layer =
          competing_heads(gains, totals[layer], room.of[layer].most, alpha_);
      above.insert(above.end(), of_layer.begin(), of_layer.end());
    }
    return per_unit(request, above);
  }

 private:
  double alpha_;
};

/// Counts an entropy over the scores, sorting every head's, and merging the sorted lists.
Cost cost_of(const Params&, const CostShape& shape) {
  Cost out;
  out.prompt = sorted(shape, sets_of({}, shape));
  out.prompt.ops +=
      real(shape.kv_heads) * (3 * real(shape.prompt) + real(shape.budget) * std::log2(real(shape.kv_heads)));
  out.metadata.lane = kNumberBytes;
  out.metadata.layer = kNumberBytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "lava_layers",
      .summary = "layers whose scores are spread out get more, and their heads compete for it",
      .paper =
          "Shen, Yuan, Zhang, Wang, Jiang, Nguyen, LAVa: Layer-wise KV Cache Eviction with Dynamic Budget "
          "Allocation, arXiv 2025, https://arxiv.org/abs/2509.09754",
      .details =
          "The budget above the eviction's floor is split over layers in proportion to the entropy of the "
          "eviction's scores, of all heads and unprotected positions of a layer as shares of their sum, "
          "divided by the logarithm of their number; what a layer cannot use goes evenly to those that can. "
          "Within a layer the best scores of all heads are counted as adakv does: a share alpha of equal "
          "budgets is each head's own. The authors apply it layer by layer during the prefill; sets are "
          "nested, so the end is the same.",
      .departures = {{"authors' code: the share that is a head's own is of the budget before layers were "
                      "weighed",
                      "of the layer's"}},
      .params = {real_param("alpha", "0.2", {0, 1},
                            "of the layer's mean budget that every head is given; 1 is equal", "share")},
      .cost = cost_of,
      .rule = AllocationRule{.uses_scores = true, .make = made<LavaLayers>}};
}

}  // namespace kvsim::policy::lava_layers
