// Spends the budget where the next token retains the most importance.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "policies/api/allocation.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_rows.hpp"
#include "policies/parts/splits/token_gains.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::xkv {
namespace {

class Xkv final : public Allocation {
 public:
  explicit Xkv(const Params& params)
      : r_avg_(params.real("r_avg")),
        rows_(params.count("rows")),
        smooth_(Pooling::parse(params.word("smooth"))) {}

  std::unique_ptr<Profile> profile(const CacheUnit& lane) const override {
    return std::make_unique<WindowImportance>(lane.n_query_heads(), rows_, smooth_);
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    const Rooms room = rooms(request);
    const std::vector<TokenGains> retention = retention_by_layer(request);
    const std::size_t n_picks = room.total();
    if (r_avg_ > 0) return per_layer(request, until_target(retention, n_picks));
    std::vector<std::vector<double>> gains;
    for (const TokenGains& layer : retention) {
      const auto nothing =
          std::find_if(layer.above.begin(), layer.above.end(), [](double w) { return w == 0; });
      gains.emplace_back(layer.above.begin(), nothing);
    }
    std::vector<std::size_t> above = counts_of_largest(gains, n_picks, request.prompt);
    spread(above, n_picks - std::accumulate(above.begin(), above.end(), std::size_t{0}), room.most());
    return per_layer(request, above);
  }

 private:
  /// Returns what each layer retains of its w, which is averaged over its lanes and divided by its sum. A
  /// layer without importance retains all of it.
  static std::vector<TokenGains> retention_by_layer(const AllocationRequest& request) {
    if (request.profiles.size() != request.n_lanes()) bug("xkv needs the importance of every lane");
    std::vector<TokenGains> out;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      const auto lanes = std::span(request.profiles).subspan(layer * request.n_kv_heads, request.n_kv_heads);
      std::vector<double> w(lanes[0].size());
      for (const std::vector<double>& lane : lanes)
        for (std::size_t j = 0; j < w.size(); ++j) w[j] += lane[j] / static_cast<double>(lanes.size());
      const double sum = sum_of(w, layer);
      for (double& share : w) share = sum > 0 ? share / sum : 0.0;
      out.push_back(token_gains(request, w, layer));
      if (!(sum > 0)) out.back().at_floor = 1;
    }
    return out;
  }

  static double sum_of(const std::vector<double>& weights, std::size_t layer) {
    double sum = 0;
    for (const double w : weights) {
      if (!(w >= 0) || std::isinf(w))
        input_error("importance is negative or not finite", "layer " + std::to_string(layer),
                    "The keys or queries of the run hold values that are not finite.");
      sum += w;
    }
    return sum;
  }

  /// Spends one token after the other until the retained shares average r_avg, at most n.
  std::vector<std::size_t> until_target(const std::vector<TokenGains>& retention, std::size_t n) const {
    struct Pick {
      double share;
      std::size_t layer;
    };
    std::vector<Pick> picks;
    double retained = 0;
    for (std::size_t layer = 0; layer < retention.size(); ++layer) {
      retained += retention[layer].at_floor;
      for (const double share : retention[layer].above) picks.push_back({share, layer});
    }
    std::stable_sort(picks.begin(), picks.end(),
                     [](const Pick& a, const Pick& b) { return a.share > b.share; });
    std::vector<std::size_t> out(retention.size());
    // A target missed only by rounding counts as met.
    const double target = (r_avg_ - 1e-12) * static_cast<double>(retention.size());
    for (std::size_t i = 0; i < std::min(n, picks.size()) && retained < target && picks[i].share > 0; ++i) {
      retained += picks[i].share;
      ++out[picks[i].layer];
    }
    return out;
  }

  double r_avg_;
  std::size_t rows_;
  Pooling smooth_;
};

/// Counts one more prefill, without a cache, that measures w; sorting every layer's w; and a heap of layers
/// that spends the budget.
Cost cost_of(const Params& params, const CostShape& shape) {
  Cost out = window_cost(shape, params.count("rows"), params.word("smooth"));
  out.prompt = out.prompt + sorted(shape, {true, 1});
  out.prompt.ops += real(shape.budget) * std::log2(real(shape.n_layers));
  out.metadata.layer = kNumberBytes;
  out.extra_prefills = 1;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "xkv",
      .summary = "per-layer budgets that maximise the mean importance retention, by greedy choice",
      .paper =
          "Li, Wang, Gu, Yu, XKV: Personalized KV Cache Memory Reduction for Long-Context LLM Inference, "
          "arXiv 2024, Algorithm 1, https://arxiv.org/abs/2412.05896",
      .details =
          "Importance w of a layer: attention of the last prompt rows, averaged over rows and query heads, "
          "pooled over positions, divided by its sum. Algorithm 1 hands out one token at a time to the layer "
          "whose next largest w is largest (the first layer among equals) until the budget above the "
          "eviction's floor is spent: the N largest of all layers' w, those of positions that the eviction "
          "protects left out, since every layer holds them anyway. Every KV head of a layer gets its layer's "
          "number. A layer that holds all of its importance drops out; when all have, what is left is spread "
          "evenly, so the total is exact. With r_avg the hand-out ends when the retained shares, protected "
          "positions included, averaged over layers, reach it, and the total may be smaller than the budget.",
      .departures =
          {{"paper: how heads are merged is not said", "mean over query heads"},
           {"paper: one allocation for a category, averaged over sampled tasks",
            "one per prompt; kvsim allocate averages over a share of traces, fixed(shares=...) applies it"},
           {"paper: Algorithm 2 as printed keeps the n best of w, which has no entry for the observation "
            "window, and so drops it",
            "the window stays, inside the budget"}},
      .params = {real_param("r_avg", "0", {0, 1},
                            "stop at this mean retention instead of spending the whole budget; 0: spend it",
                            "share"),
                 rows_param(8), pool_param("smooth", "avg:7", "smoothing of the importance along positions")},
      .needs = {.prompt_rows = RowNeed::window},
      .cost = cost_of,
      .rule = AllocationRule{.inexact = [](const Params& params) { return params.real("r_avg") > 0; },
                             .own_total = [](const Params& params) { return params.real("r_avg") > 0; },
                             .make = made<Xkv>}};
}

}  // namespace kvsim::policy::xkv
