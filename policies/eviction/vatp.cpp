// Ranks by attention times the size of the token's value.
#include <algorithm>

#include "policies/api/over_base.hpp"
#include "policies/api/score_policy.hpp"
#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::vatp {
namespace {

class VatpDecoder final : public ScoredDecoder, public Renewing {
 public:
  VatpDecoder(const KeepRule& selection, std::vector<double> scores, std::vector<double> norms,
              std::unique_ptr<Decoder> base)
      : ScoredDecoder(selection, std::move(scores)), norms_(std::move(norms)), base_(std::move(base)) {}

  void observe(const Step& step) override {
    base_->observe(step);
    score(step);
  }
  void renew(const Step& step) override {
    policy::renew(*base_, step);
    score(step);
  }

  void close_slots(std::span<const std::size_t> victims) override {
    ScoredDecoder::close_slots(victims);
    base_->close_slots(victims);
    close_up(norms_, victims);
  }

 private:
  void score(const Step& step) {
    const std::span<double> scores = admit(step, 0);
    norms_.resize(scores.size());
    norms_[step.own_slot] = l1_norm(step.values.row(0));
    const std::span<const double> attention = base_->scores();
    for (std::size_t slot = 0; slot < scores.size(); ++slot) scores[slot] = attention[slot] * norms_[slot];
  }

  std::vector<double> norms_;  // per slot
  std::unique_ptr<Decoder> base_;
};

class Vatp final : public OverBase<ScoredEviction> {
 public:
  Vatp(const Params& params, const CacheUnit& unit)
      : OverBase(params.part("base").make_eviction(unit), params, unit) {}

  /// Protects what the base protects, and the sinks; where the budget does not hold both, the window is
  /// shorter.
  Protection protection(std::size_t budget, std::size_t prompt) const override {
    Protection out = rule().protection;
    const std::size_t most = budget - std::min(budget, rule().floor() - std::max<std::size_t>(out.window, 1));
    out.window = std::min(base().protection(budget, prompt).window, most);
    return out;
  }

  double rows_in_score(std::size_t prompt) const override { return base().rows_in_score(prompt); }

  void reserve(std::size_t budget, std::vector<char>& stays) const override { base().reserve(budget, stays); }

  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    auto decodes = base().decoder(budget, slots);
    if (!decodes) return nullptr;
    return std::make_unique<VatpDecoder>(selection(budget), scores_of(slots), at_positions(norms_, slots),
                                         std::move(decodes));
  }

 private:
  std::vector<double> score(const Prompt& prompt) override {
    base().finish_prompt(prompt);
    const std::span<const double> attention = base().scores();
    std::vector<double> out(prompt.length());
    for (std::size_t j = 0; j < out.size(); ++j) {
      norms_.push_back(l1_norm(prompt.values(0).row(j)));
      out[j] = attention[j] * norms_[j];
    }
    return out;
  }

  std::vector<double> norms_;  // per prompt position
};

Needs needs_of(const Params& params) {
  return merged(params.part("base").needs(), {.values = true});
}

/// Counts the base's cost in every lane, and the norm of each value.
Cost cost_of(const Params& params, const CostShape& shape) {
  Cost out = per_lane(params.part("base")).cost(shape);
  out.prompt = out.prompt + over_values(shape, shape.prompt, 2);
  if (out.appends) return out;
  const double lanes = real(shape.kv_heads);
  out.metadata.lane_slot += kScoreBytes;
  out.step = out.step + over_values(shape, 1, 2);
  out.step_slot = out.step_slot + Work{.ops = lanes, .bytes = lanes * kScoreBytes};
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "vatp",
      .summary =
          "keeps what a base policy ranks highest when its score is multiplied by the size of the value",
      .paper =
          "Guo, Kamigaito, Watanabe, Attention Score is not All You Need for Token Importance Indicator in "
          "KV Cache Reduction: Value Also Matters, EMNLP 2024, https://arxiv.org/abs/2406.12335",
      .details =
          "Score: the base's times the L1 norm of the token's value, per KV head, in the prompt and while "
          "decoding. The first tokens, which collect attention but have tiny values, are pinned; the base's "
          "own protection, phase and ties hold, and what else it keeps of the prompt. Meant for bases whose "
          "scores are attention and thus not negative.",
      .departures = {{"authors' code: multiplies each step's attention before adding it up",
                      "multiplies the sum: the same, since a value does not change"},
                     {"authors' code: multi-head attention only", "the norm of the KV head's value"},
                     {"authors' code: sinks get the largest number there is when the prompt ends, the budget "
                      "for heavy hitters paying for them",
                      "sinks are protected and count inside the budget, before the base's window"}},
      .params = {policy_param("base", "h2o", "whose score is multiplied"), sinks_param(20)},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true, .values = true},
      .needs_of = needs_of,
      .cost = cost_of,
      .rule = EvictionRule{.scored = true,
                           .overshoot = [](const Params& params) { return params.part("base").overshoot(); },
                           .make = made<Vatp>}};
}

}  // namespace kvsim::policy::vatp
