// Spends the second part of the budget on the tokens that change the output most.
#include <algorithm>

#include "policies/api/over_base.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::critical_kv {
namespace {

class CriticalKv final : public OverBase<Eviction> {
 public:
  CriticalKv(const Params& params, const CacheUnit& unit)
      : OverBase(params.part("base").make_eviction(unit)),
        unit_(unit),
        tie_(KeepRule::of(params).tie),
        base_floor_(params.part("base").floor()),
        first_stage_(params.real("first_stage")),
        epsilon_(params.real("epsilon")) {}

  void finish_prompt(const Prompt& prompt) override {
    base().finish_prompt(prompt);
    std::vector<double> worth(prompt.length());
    for (int head = 0; head < unit_.n_query_heads(); ++head) {
      const MatrixView values = prompt.values(head / unit_.group);
      const std::vector<double> norms = projected_norms(values, prompt.output_weights(head));
      for (std::size_t j = 0; j < worth.size(); ++j) worth[j] += norms[j] / unit_.n_query_heads();
    }
    const double rows = base().rows_in_score(prompt.length());
    for (std::size_t j = 0; j < worth.size(); ++j) worth[j] *= base().scores()[j] / rows + epsilon_;
    second_ = BlockOrder(worth, 1, tie_);
  }

  /// Generated tokens are appended.
  Start start(std::size_t budget) const override {
    std::vector<char> stays(base().scores().size());
    for (const Position position : base().start(first_stage(budget)).keep)
      stays[static_cast<std::size_t>(position)] = 1;
    Start out;
    out.keep = second_.best(budget, std::move(stays));
    return out;
  }

  std::span<const double> scores() const override { return base().scores(); }
  double rows_in_score(std::size_t prompt) const override { return base().rows_in_score(prompt); }
  /// Returns what the base protects under the budget of the first stage.
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    return base().protection(first_stage(budget), prompt);
  }

 private:
  std::size_t first_stage(std::size_t budget) const {
    const auto share = static_cast<std::size_t>(first_stage_ * static_cast<double>(budget));
    return std::min(std::max(share, base_floor_), budget);
  }

  CacheUnit unit_;
  Tie tie_;
  std::size_t base_floor_;
  double first_stage_, epsilon_;
  BlockOrder second_;
};

Needs needs_of(const Params& params) {
  Needs out = params.part("base").needs();
  out.decode_rows = false;
  out.values = out.output_weights = true;
  return out;
}

void check(const Params& params) {
  refuse_streaming("critical_kv", params.part("base"));
}

/// The base's cost on the prompt, norms of projected values, and a second ranking.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Part& base = params.part("base");
  Cost out = prompt_only(base.cost(shape));
  out.prompt = out.prompt + projected_values(shape);
  if (shape.prompt > shape.budget) out.prompt = out.prompt + sorted(shape, sets_of(base.params, shape));
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "critical_kv",
      .summary = "half of the budget as a base policy ranks, half by what moves the layer's output most",
      .paper =
          "Feng, Lv, Guo, Cao, Xie, Zhou, Identify Critical KV Cache in LLM Inference from an Output "
          "Perturbation Perspective, arXiv 2025, https://arxiv.org/abs/2502.03805",
      .details =
          "First stage: what the base keeps under floor(first_stage * B), its protection included (and never "
          "less than that needs). Second stage: of the rest those with the largest (base score + epsilon) "
          "times the L1 norm of the value after the output projection, averaged over the query heads; a base "
          "that adds attention up counts with its mean over rows and query heads, so epsilon means the same "
          "for all. Its scores, for an allocation that reads them, are the base's. Over a base with one set "
          "per layer it keeps one set per layer, worth averaged over all query heads. Generated tokens are "
          "appended.",
      .departures = {{"kvpress: protected tokens compete with a score above all others",
                      "they stay with the first stage"}},
      .params = {policy_param("base", "snapkv", "what ranks in the first stage"),
                 real_param("first_stage", "0.5", {0, 1}, "what the base alone decides",
                            "share of the budget"),
                 real_param("epsilon", "0.0001", {0, 1}, "added to the base's score in the second stage")},
      .needs = {.prompt_rows = RowNeed::window, .values = true, .output_weights = true},
      .needs_of = needs_of,
      .layer_unit = [](const Params& params) { return params.part("base").layer_unit(); },
      .cost = cost_of,
      .check = check,
      .rule = EvictionRule{.scored = true,
                           .floor = [](const Params& params) { return params.part("base").floor(); },
                           .make = made<CriticalKv>}};
}

}  // namespace kvsim::policy::critical_kv
