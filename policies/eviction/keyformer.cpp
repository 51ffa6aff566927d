// Accumulates Gumbel softmax: attention with noise, at a rising temperature.
#include <cmath>

#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/accumulated_attention.hpp"
#include "policies/parts/rows/gumbel.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::keyformer {
namespace {

/// Computes softmax((x + Gumbel noise) / tau) of logits x that are known only as softmax(x) up to a factor:
/// with E exponential, -log E is Gumbel, so the weight of p is (p / E)^(1 / tau).
class NoisySoftmax {
 public:
  NoisySoftmax(const Params& params, const CacheUnit& unit)
      : noise_(params.word("noise") == "gumbel"),
        key_(combine({unit.seed, key_of("keyformer"), static_cast<std::uint64_t>(unit.layer)})),
        first_head_(static_cast<std::uint64_t>(unit.first_kv_head) * static_cast<std::uint64_t>(unit.group)) {
  }

  /// `position_of(i)`: position of the key behind attention[i].
  template <class PositionOf>
  void operator()(std::span<const float> attention, std::size_t head, std::size_t query, double tau,
                  PositionOf position_of, std::vector<double>& out) const {
    const std::uint64_t row_key = combine({key_, first_head_ + head, query});
    double sum = 0;
    out.resize(attention.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(attention[i]);
      if (noise_ && out[i] > 0) out[i] /= exponential(combine({row_key, position_of(i)}));
      if (tau != 1) out[i] = std::pow(out[i], 1 / tau);
      sum += out[i];
    }
    if (sum > 0)
      for (double& weight : out) weight /= sum;
  }

 private:
  bool noise_;
  std::uint64_t key_, first_head_;
};

struct Schedule {
  double tau, growth;
  double at(std::size_t step) const { return tau + growth * static_cast<double>(step); }
};

class KeyformerDecoder final : public ScoredDecoder {
 public:
  KeyformerDecoder(const NoisySoftmax& softmax, const Schedule& schedule, const KeepRule& selection,
                   std::vector<double> scores)
      : ScoredDecoder(selection, std::move(scores)), softmax_(softmax), schedule_(schedule) {}

  void observe(const Step& step) override {
    const std::span<double> scores = admit(step, 0);
    const double tau = schedule_.at(++step_), heads = static_cast<double>(step.attention.rows);
    for (std::size_t head = 0; head < step.attention.rows; ++head) {
      softmax_(
          step.attention.row(head), head, static_cast<std::size_t>(step.position), tau,
          [&](std::size_t slot) { return static_cast<std::uint64_t>(step.slots[slot]); }, row_);
      for (std::size_t slot = 0; slot < scores.size(); ++slot) scores[slot] += row_[slot] / heads;
    }
  }

 private:
  NoisySoftmax softmax_;
  Schedule schedule_;
  std::size_t step_ = 0;
  std::vector<double> row_;
};

class Keyformer final : public ScoredEviction {
 public:
  Keyformer(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit, params.real("recent")),
        schedule_{params.real("tau"), params.real("tau_growth")},
        softmax_(params, unit),
        sums_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return kAllRows; }
  void observe(const PromptRows& block) override {
    std::vector<double>& sums = sums_.open(block);
    for (std::size_t i = 0; i < block.p.rows; ++i) {
      const std::size_t query = block.first_query + i;
      softmax_(
          block.p.row(i).first(query + 1), static_cast<std::size_t>(block.query_head), block.first + query,
          schedule_.at(0), [&](std::size_t j) { return static_cast<std::uint64_t>(block.first + j); }, row_);
      for (std::size_t j = 0; j <= query; ++j) sums[j] += row_[j];
    }
  }
  double rows_in_score(std::size_t prompt) const override { return static_cast<double>(prompt); }
  std::unique_ptr<Decoder> decoder(std::size_t budget, std::span<const Position> slots) const override {
    return std::make_unique<KeyformerDecoder>(softmax_, schedule_, selection(budget), scores_of(slots));
  }

 private:
  std::vector<double> score(const Prompt& /*prompt*/) override { return sums_.mean(); }

  Schedule schedule_;
  NoisySoftmax softmax_;
  ColumnSums sums_;
  std::vector<double> row_;
};

/// Counts accumulated attention; besides, every element of a row needs a draw (a hash and a logarithm), a
/// power and a division by its row's sum.
Cost cost_of(const Params& params, const CostShape& shape) {
  constexpr double kSteps = 5;
  Scoring scoring = accumulating(params, shape, Accumulation{});
  scoring.prompt.ops += kSteps * seen(shape, kAllRows);
  scoring.slot.ops += kSteps * real(shape.query_heads);
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "keyformer",
      .summary = "keeps key tokens by accumulated attention with Gumbel noise, and recent tokens",
      .paper =
          "Adnan, Arunkumar, Jain, Nair, Soloveychik, Kamath, Keyformer: KV Cache Reduction through Key "
          "Tokens Selection for Efficient Generative Inference, MLSys 2024, https://arxiv.org/abs/2403.09054",
      .details =
          "Score: sum over rows of softmax((x + g) / tau) over what the query may attend, averaged over the "
          "unit's query heads; x are the logits, recovered from the logarithm of attention (a row's constant "
          "cancels), g is Gumbel noise, fresh for every query, key and query head. tau grows with every "
          "generated token: tau + t * tau_growth for the t-th, tau in the prompt. Noise is a function of "
          "(seed, layer, query head, query, key). noise=none,tau_growth=0 is h2o with the same recent share.",
      .departures = {{"authors' code: heavy and recent sizes fixed from the prompt's length",
                      "a share of the budget: recent"},
                     {"authors' code: adds up over batch and beams, noise new at every call",
                      "one sequence; noise follows from the seed"},
                     {"authors' code: per query head, no grouped queries",
                      "mean over the heads that share a KV head"},
                     {"authors' code: attends B + 1, then drops one", "drops before attending; phase=post"}},
      .params = {real_param("tau", "1", {0.01, 100}, "temperature in the prompt"),
                 real_param("tau_growth", "0.01", {0, 100},
                            "by how much the temperature grows with every generated token", "per token"),
                 choice_param("noise", "gumbel", {"gumbel", "none"}, "what is added to the logits"),
                 recent_param("0.3"), sinks_param(0), window_param(0), unit_param("lane"),
                 granularity_param(), phase_param(), tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},
      .randomised = true,
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Keyformer>}};
}

}  // namespace kvsim::policy::keyformer
