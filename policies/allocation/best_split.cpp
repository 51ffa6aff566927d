// The split that keeps the most of the eviction's own score.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/cost_terms.hpp"
#include "policies/parts/largest_counts.hpp"
#include "policies/parts/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

/// In falling order, divided by their sum if asked.
std::vector<double> falling(std::vector<double> scores, bool normalise) {
  std::sort(scores.begin(), scores.end(), std::greater<>());
  if (!normalise) return scores;
  if (!scores.empty() && !(scores.back() >= 0))
    usage_error("normalise=true needs scores that are not negative", "best_split",
                "Another eviction, or normalise=false.");
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& x : scores) x = sum > 0 ? x / sum : 0.0;
  return scores;
}

class BestSplit final : public Allocation {
 public:
  BestSplit(bool per_layer, bool normalise) : per_layer_(per_layer), normalise_(normalise) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.scores.size() != request.n_lanes()) bug("best_split needs the scores of every lane");
    const Headroom room = headroom(request);
    const std::size_t heads = per_layer_ || request.shared ? request.n_kv_heads : 1;
    const std::vector<std::vector<double>> gains = gains_of(request, room, heads);
    const std::size_t n = room.mean * gains.size();
    std::vector<std::size_t> above = counts_of_largest(gains, n, room.most);
    spread(above, n - std::accumulate(above.begin(), above.end(), std::size_t{0}), room.most);
    return heads == 1 ? per_unit(request, above) : per_layer(request, above);
  }

 private:
  /// What one more token for each of `heads` neighbouring lanes adds, from the floor on: they fall, so the
  /// greedy choice is the best.
  std::vector<std::vector<double>> gains_of(const AllocationRequest& request, const Headroom& room,
                                            std::size_t heads) const {
    std::vector<std::vector<double>> out;
    for (std::size_t lane = 0; lane < request.n_lanes(); ++lane) {
      const std::vector<double> scores = falling(request.scores[lane], normalise_);
      const std::size_t n_protected = request.prompt - scores.size();
      const std::size_t held = std::min(room.floor - std::min(room.floor, n_protected), scores.size());
      if (lane % heads == 0) out.emplace_back(scores.size() - held);
      for (std::size_t i = held; i < scores.size(); ++i) out.back()[i - held] += scores[i];
    }
    return out;
  }

  bool per_layer_, normalise_;
};

/// Every head's scores are sorted; a heap over all lanes, or layers, hands out the budget.
Cost cost_of(const Params&, const CostShape& shape) {
  Cost out;
  out.prompt = sorted(shape, sets_of({}, shape));
  out.prompt.ops +=
      real(shape.budget) * real(shape.kv_heads) * std::log2(real(shape.n_layers * shape.kv_heads));
  out.metadata.lane = kNumberBytes;
  return out;
}

}  // namespace

PolicySpec best_split_spec() {
  return {
      .name = "best_split",
      .kind = Kind::allocation,
      .summary = "the split over lanes, or layers, that keeps the largest sum of the eviction's own scores",
      .details =
          "Every lane keeps its best scores, so the next token of a lane adds less than the one before; "
          "taking "
          "the best next token of all lanes until the budget is spent is then the best split there is (of "
          "equal "
          "ones the first lane's). A bound on what any allocation can do for this eviction, in the "
          "eviction's "
          "measure: beside it stands what one of the published rules achieves.",
      .params = {{.name = "scope",
                  .type = ParamType::choice,
                  .fallback = "head",
                  .choices = {"head", "layer"},
                  .help = "who gets a number of its own"},
                 {.name = "normalise",
                  .type = ParamType::flag,
                  .fallback = "false",
                  .help = "every lane's scores divided by their sum first"}},
      .uses_scores = true,
      .cost = cost_of,
      .make_allocation = [](const Params& params) {
        return std::make_unique<BestSplit>(params.word("scope") == "layer", params.flag("normalise"));
      }};
}

}  // namespace kvsim::policy
