// Budgets where the next token retains the most importance.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/window_importance.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

/// A position of a layer, worth its share of the layer's importance.
struct Pick {
  double share = 0;
  std::size_t layer = 0;
  /// The order of the greedy algorithm; equal picks of one layer are interchangeable.
  bool operator<(const Pick& other) const {
    return share != other.share ? share > other.share : layer < other.layer;
  }
};

class Xkv final : public Allocation {
 public:
  explicit Xkv(double r_avg) : r_avg_(r_avg) {}

  std::unique_ptr<Profile> profile(const Unit& lane) const override {
    return std::make_unique<WindowImportance>(lane.n_query_heads());
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    check_budget(request);
    const std::vector<std::vector<double>> importance = by_layer(request);
    const std::size_t floor = std::min(request.floor, request.prompt);
    const std::size_t most = request.prompt - floor;
    const std::size_t n_picks = (std::min(request.budget, request.prompt) - floor) * request.n_layers;

    std::vector<Pick> picks = candidates(importance, most);
    std::vector<std::size_t> above =
        r_avg_ > 0 ? until_target(picks, n_picks, importance) : best(picks, n_picks, request.n_layers);
    if (r_avg_ == 0) spread(above, n_picks - std::min(n_picks, picks.size()), most);
    return per_lane(above, floor, request.n_kv_heads);
  }

 private:
  /// w of each layer: the mean over its lanes.
  static std::vector<std::vector<double>> by_layer(const AllocationRequest& request) {
    if (request.profiles.size() != request.n_lanes()) bug("xkv needs the importance of every lane");
    std::vector<std::vector<double>> out;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      std::vector<double> mean(request.profiles[layer * request.n_kv_heads].size());
      for (std::size_t head = 0; head < request.n_kv_heads; ++head) {
        const std::vector<double>& w = request.profiles[layer * request.n_kv_heads + head];
        for (std::size_t j = 0; j < mean.size(); ++j)
          mean[j] += w[j] / static_cast<double>(request.n_kv_heads);
      }
      out.push_back(std::move(mean));
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

  /// Of every layer its `most` largest shares: a layer cannot use more.
  static std::vector<Pick> candidates(const std::vector<std::vector<double>>& importance, std::size_t most) {
    std::vector<Pick> all;
    for (std::size_t layer = 0; layer < importance.size(); ++layer) {
      const std::vector<double>& weights = importance[layer];
      const double sum = sum_of(weights, layer);
      std::vector<Pick> picks(weights.size());
      std::transform(weights.begin(), weights.end(), picks.begin(),
                     [&](double w) { return Pick{.share = sum > 0 ? w / sum : 0.0, .layer = layer}; });
      const auto end = picks.begin() + static_cast<std::ptrdiff_t>(std::min(most, picks.size()));
      std::nth_element(picks.begin(), end, picks.end());
      all.insert(all.end(), picks.begin(), end);
    }
    return all;
  }

  /// Picks per layer among the n best: taking the best of all again and again ends with them, since each
  /// layer's gains fall.
  static std::vector<std::size_t> best(std::vector<Pick>& picks, std::size_t n, std::size_t n_layers) {
    const auto end = picks.begin() + static_cast<std::ptrdiff_t>(std::min(n, picks.size()));
    std::nth_element(picks.begin(), end, picks.end());
    std::vector<std::size_t> out(n_layers);
    for (auto pick = picks.begin(); pick != end; ++pick) ++out[pick->layer];
    return out;
  }

  /// The same, ending as soon as the retained shares average r_avg; a layer without importance retains all of
  /// it.
  std::vector<std::size_t> until_target(std::vector<Pick>& picks, std::size_t n,
                                        const std::vector<std::vector<double>>& importance) const {
    std::sort(picks.begin(), picks.end());
    double retained = 0;
    for (std::size_t layer = 0; layer < importance.size(); ++layer)
      if (sum_of(importance[layer], layer) == 0) retained += 1;
    std::vector<std::size_t> out(importance.size());
    const double target = r_avg_ * static_cast<double>(importance.size());
    for (std::size_t i = 0; i < std::min(n, picks.size()) && retained < target && picks[i].share > 0; ++i) {
      retained += picks[i].share;
      ++out[picks[i].layer];
    }
    return out;
  }

  /// Gives `rest` further tokens to the layers in turn, none beyond `most`; budget <= prompt leaves room for
  /// them.
  static void spread(std::vector<std::size_t>& above, std::size_t rest, std::size_t most) {
    while (rest > 0)
      for (std::size_t& n : above)
        if (rest > 0 && n < most) ++n, --rest;
  }

  double r_avg_;
};

}  // namespace

PolicySpec xkv_spec() {
  return {
      .name = "xkv",
      .kind = Kind::allocation,
      .summary = "per-layer budgets that maximise the mean importance retention, by greedy choice",
      .paper =
          "Li, Wang, Gu, Yu, XKV: Personalized KV Cache Memory Reduction for Long-Context LLM Inference, "
          "arXiv 2024, Algorithm 1, https://arxiv.org/abs/2412.05896",
      .details =
          "Importance w of a layer: attention of the last 8 prompt rows, averaged over rows and query "
          "heads, average pooled over 7 positions, divided by its sum. Algorithm 1 hands out one token at a "
          "time to the layer whose next largest w is largest (the first layer among equals) until the "
          "budget above the eviction's floor is spent: the N largest of all layers' w. Every KV head of a "
          "layer gets its layer's number. A layer that holds every scored position drops out; when all "
          "have, what is left is spread evenly, so the total is exact. With r_avg the hand-out ends when "
          "the retained shares, averaged over layers, reach it, and the total may be smaller than the "
          "budget.",
      .departures = {{"paper: how heads are merged is not said", "mean over query heads"},
                     {"paper: one allocation from sampled tasks", "one allocation per prompt"}},
      .params = {{.name = "r_avg",
                  .type = ParamType::real,
                  .fallback = "0",
                  .min = 0,
                  .max = 1,
                  .unit = "share",
                  .help = "stop at this mean retention instead of spending the whole budget; 0: spend it"}},
      .needs = {.prompt_rows = RowNeed::window},
      .inexact = true,  // with r_avg
      .make_allocation = [](const Params& params) { return std::make_unique<Xkv>(params.real("r_avg")); }};
}

}  // namespace kvsim::policy
