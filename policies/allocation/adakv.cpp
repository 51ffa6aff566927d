// Lets the heads of a layer compete for its budget.
#include <algorithm>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/splits/token_gains.hpp"
#include "policies/parts/splits/whole_numbers.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::adakv {
namespace {

using Gains = std::vector<std::vector<double>>;  ///< per head, falling

/// Of a head's scores that are not protected: the share that what it chooses at its floor and its next n best
/// hold.
double top_share(const TokenGains& gains, std::size_t n) {
  const std::vector<double>& falling = gains.above;
  if (!falling.empty() && !(falling.back() >= 0))
    usage_error("normalise=true needs scores that are not negative", "adakv",
                "Another eviction, or normalise=false.");
  const double all = std::accumulate(falling.begin(), falling.end(), gains.chosen_at_floor);
  const auto end = falling.begin() + static_cast<std::ptrdiff_t>(std::min(n, falling.size()));
  return all > 0 ? std::accumulate(falling.begin(), end, gains.chosen_at_floor) / all : 0;
}

class AdaKv final : public Allocation {
 public:
  explicit AdaKv(const Params& params)
      : alpha_(params.real("alpha")),
        normalise_(params.flag("normalise")),
        variant_(params.word("variant")) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    if (request.scores.size() != request.n_lanes()) bug("adakv needs the scores of every lane");
    std::vector<std::size_t> above;
    for (std::size_t layer = 0; layer < request.n_layers; ++layer) {
      const Headroom room = headroom(request, layer);
      const std::vector<std::size_t> of_layer =
          request.shared ? std::vector<std::size_t>{room.mean} : split(request, room, layer);
      above.insert(above.end(), of_layer.begin(), of_layer.end());
    }
    return per_unit(request, above);
  }

 private:
  std::vector<std::size_t> split(const AllocationRequest& request, const Headroom& room,
                                 std::size_t layer) const {
    Gains gains;
    for (std::size_t head = 0; head < request.n_kv_heads; ++head) {
      const TokenGains more = token_gains(request, request.scores[layer * request.n_kv_heads + head], layer);
      gains.push_back(more.above);
      if (!normalise_) continue;
      const double factor = top_share(more, room.mean);
      for (double& x : gains.back()) x *= factor;
    }
    const std::size_t total = room.mean * gains.size();
    if (variant_ == "exact") return competing_heads(gains, total, room.most, alpha_);
    if (variant_ == "kvpress") {
      const auto pinned = static_cast<std::size_t>(alpha_ * static_cast<double>(room.floor + room.mean));
      return pinned_first(gains, room, pinned - std::min(pinned, room.floor));
    }
    const auto safe = static_cast<double>(static_cast<std::size_t>(alpha_ * static_cast<double>(room.mean)));
    std::vector<std::size_t> won = best_of_heads(gains, total, room.most);
    for (std::size_t& n : won)
      n = std::min(half_even(static_cast<double>(n) * (1 - alpha_) + safe), room.most);
    return won;
  }

  /// Gives every head its `pinned` best; the rest goes to the best of all heads.
  static std::vector<std::size_t> pinned_first(Gains gains, const Headroom& room, std::size_t pinned) {
    for (std::vector<double>& of_head : gains)
      of_head.erase(of_head.begin(), of_head.begin() + static_cast<std::ptrdiff_t>(pinned));
    std::vector<std::size_t> out =
        best_of_heads(gains, (room.mean - pinned) * gains.size(), room.most - pinned);
    for (std::size_t& tokens : out) tokens += pinned;
    return out;
  }

  double alpha_;
  bool normalise_;
  std::string variant_;
};

/// The sorted lists of a layer are merged.
Cost cost_of(const Params&, const CostShape& shape) {
  return gains_cost(shape, shape.kv_heads);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "adakv",
      .summary = "the heads of a layer compete for its budget by the eviction's own scores",
      .paper =
          "Feng, Lv, Cao, Xie, Zhou, Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for "
          "Efficient LLM Inference, NeurIPS 2025, https://arxiv.org/abs/2407.11550",
      .details =
          "Every layer has the same total. Above the eviction's floor, the best scores of all its heads "
          "together, those of what it protects left out, are counted per head (of equal ones the first "
          "head's); a share alpha of the mean is given to every head, the rest by these counts, whole "
          "numbers by largest remainder. In its own measure, the sum of scores kept, this is never worse "
          "than equal budgets. variant=official: each head's number is rounded by itself, halves to even, "
          "and the total may differ. variant=kvpress: every head keeps its alpha * budget best, floor "
          "included, and only the rest competes. Evictions that share one set among a layer's heads get "
          "equal budgets.",
      .departures = {{"authors' code: rounding loses up to a token per head",
                      "exact total; variant=official"},
                     {"kvpress: the safeguard is a guarantee on each head's best tokens, not a mixture",
                      "a mixture; variant=kvpress"},
                     {"KVCache-Factory multiplies a head's scores by the share its best ones hold",
                      "raw scores compete; normalise=true"}},
      .params = {real_param("alpha", "0.2", {0, 1},
                            "of the mean budget that every head is given; 1 is uniform", "share"),
                 flag_param("normalise", "false",
                            "scores times the share of a head's score that its best ones hold"),
                 variant_param({"official", "kvpress"})},
      .cost = cost_of,
      .rule =
          AllocationRule{.uses_scores = true,
                         .inexact = [](const Params& params) { return params.word("variant") == "official"; },
                         .make = made<AdaKv>}};
}

}  // namespace kvsim::policy::adakv
