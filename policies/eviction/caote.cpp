// Ranks by how far the output of attention moves when a token leaves.
#include <algorithm>
#include <cmath>

#include "policies/api/over_base.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"

namespace kvsim::policy::caote {
namespace {

class Caote final : public OverBase<ScoredEviction> {
 public:
  Caote(const Params& params, const CacheUnit& unit)
      : OverBase(params.part("base").make_eviction(unit), params, unit), mean_(params.is("output", "mean")) {}

  /// Protects what the base protects, as far as the budget goes.
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    Protection out = base().protection(budget, prompt);
    out.window = std::min(out.window, budget - std::min(budget, out.sinks));
    return out;
  }
  void reserve(std::size_t budget, std::vector<char>& stays) const override { base().reserve(budget, stays); }

 private:
  /// A weight a of value v moves the output o by a / (1 - a) |v - o|, once the others are divided by 1 - a.
  std::vector<double> score(const Prompt& prompt) override {
    base().finish_prompt(prompt);
    const std::span<const double> attention = base().scores();
    const MatrixView values = prompt.values(0);
    double all = 0;
    for (const double a : attention) all += a;
    std::vector<double> output(values.cols), out(prompt.length());
    for (std::size_t j = 0; j < out.size(); ++j)
      for (std::size_t c = 0; c < output.size(); ++c)
        output[c] += (mean_ ? 1 / static_cast<double>(out.size()) : attention[j] / all) *
                     static_cast<double>(values(j, c));
    for (std::size_t j = 0; j < out.size(); ++j) {
      double squares = 0;
      for (std::size_t c = 0; c < output.size(); ++c) {
        const double away = static_cast<double>(values(j, c)) - output[c];
        squares += away * away;
      }
      // A token that has all the attention leaves nothing to divide by.
      const double a = attention[j] / all, rest = std::max(1 - a, 1e-12);
      out[j] = all > 0 ? a / rest * std::sqrt(squares) : 0;
    }
    return out;
  }

  bool mean_;
};

Needs needs_of(const Params& params) {
  Needs out = params.part("base").needs();
  out.decode_rows = false;
  out.values = true;
  return out;
}

void check(const Params& params) {
  refuse_streaming("caote", params.part("base"));
}

/// The base's cost on the prompt in every lane, the output, and the distance of each value from it.
Cost cost_of(const Params& params, const CostShape& shape) {
  Cost out = prompt_only(per_lane(params.part("base")).cost(shape));
  out.prompt = out.prompt + over_values(shape, shape.prompt, 2) + over_values(shape, shape.prompt, 3);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "caote",
      .summary = "keeps the tokens without which the output of attention would move most",
      .paper =
          "Goel, Park, Gagrani, Jones, Morse, Langston, Lee, Lott, CAOTE: KV Cache Selection for LLMs via Attention "
          "Output Error-Based Token Eviction, 2025, https://arxiv.org/abs/2504.14051",
      .details =
          "The base's scores, divided by their sum, are weights a of the values v, and o = sum of a v. Without token j, and with the other "
          "weights divided by 1 - a, the output moves by a / (1 - a) |v - o|: the score, per KV head. output=mean takes the mean of all values "
          "for o (FastCAOTE). Exact for one token that leaves; several are ranked as if each left alone. What the base protects stays. "
          "Generated tokens are appended; periodic(base=caote) cuts them, too. Meant for bases whose scores are attention and thus not negative.",
      .departures = {{"paper: over H2O and TOVA also one token at every step of decoding",
                      "the prompt, and the rounds of periodic"}},
      .params = {policy_param("base", "snapkv", "whose scores are the attention"),
                 choice_param("output", "attended", {"attended", "mean"},
                              "o, which values are compared with"),
                 ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::window, .values = true},
      .needs_of = needs_of,
      .cost = cost_of,
      .check = check,
      .rule = EvictionRule{.scored = true,
                           .floor = [](const Params& params) { return params.part("base").floor(); },
                           .make = made<Caote>}};
}

}  // namespace kvsim::policy::caote
