// Gives each layer as many tokens as hold most of its attention.
#include <algorithm>
#include <functional>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_rows.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::zipvl {
namespace {

class ZipVl final : public Allocation {
 public:
  explicit ZipVl(const Params& params)
      : tau_(params.real("tau")), rows_(params.count("rows")), published_(published_variant(params)) {}

  std::unique_ptr<Profile> profile(const CacheUnit& lane) const override {
    return std::make_unique<WindowImportance>(lane.n_query_heads(), rows_, Pooling{});
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.profiles.size() != request.n_lanes()) bug("zipvl needs the importance of every lane");
    const Rooms room = rooms(request);
    std::vector<std::size_t> above;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer)
      above.push_back(std::min(important(request, layer), room.of[layer].most));
    if (published_) return per_layer(request, above);
    const std::vector<double> weights(above.begin(), above.end());
    return per_layer(request, shared_out(weights, room.total(), room.most()));
  }

 private:
  /// Returns the fewest positions that hold tau of the layer's importance.
  std::size_t important(const AllocationRequest& request, std::size_t layer) const {
    std::vector<double> w(request.profiles[layer * request.n_kv_heads].size());
    for (std::size_t head = 0; head < request.n_kv_heads; ++head)
      for (std::size_t j = 0; j < w.size(); ++j)
        w[j] += request.profiles[layer * request.n_kv_heads + head][j];
    std::sort(w.begin(), w.end(), std::greater<>());
    const double enough = tau_ * std::accumulate(w.begin(), w.end(), 0.0);
    std::size_t n = 0;
    for (double held = 0; n < w.size() && held < enough; ++n) held += w[n];
    return n;
  }

  double tau_;
  std::size_t rows_;
  bool published_;
};

/// Counts sorting the last rows' sums over a layer's heads, and adding them up.
Cost cost_of(const Params& params, const CostShape& shape) {
  Cost out = window_cost(shape, params.count("rows"), "none");
  out.prompt = out.prompt + sorted(shape, {true, 1});
  out.metadata.layer = kNumberBytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {.name = "zipvl",
          .summary = "layers get as many tokens as hold a given share of their attention",
          .paper =
              "He, Chen, Liu, Shao, Zhou, Zhang, Zhuang, ZipVL: Efficient Large Vision-Language Models with "
              "Dynamic Token Sparsification, arXiv 2024, https://arxiv.org/abs/2410.08584",
          .details =
              "Attention of the last prompt rows on the positions before them, summed over a layer's query "
              "heads; p of a layer is the fewest positions that hold tau of it. The budget above the "
              "eviction's floor is split in proportion to p. variant=official: p tokens above the floor, "
              "whatever the budget.",
          .departures = {{"paper: the threshold decides how much is kept",
                          "it decides the split; variant=official"},
                         {"paper: attention of probe tokens, prefill among important tokens only",
                          "attention of the last rows of the whole prompt"}},
          .params = {real_param("tau", "0.975", {0, 1},
                                "of its attention that a layer's important tokens hold", "share"),
                     rows_param(32), variant_param({"official"})},
          .needs = {.prompt_rows = RowNeed::window},
          .cost = cost_of,
          .rule = AllocationRule{
              .inexact = published_variant, .own_total = published_variant, .make = made<ZipVl>}};
}

}  // namespace kvsim::policy::zipvl
