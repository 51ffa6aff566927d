// Keeps keys that point away from the others and what stretches of the prompt attend in themselves.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/compactor_scores.hpp"

namespace kvsim::policy::compactor {
namespace {

/// Less their mean, by their standard deviation over n - 1.
void standardise(std::vector<double>& scores) {
  const auto n = static_cast<double>(scores.size());
  double mean = 0, squares = 0;
  for (const double x : scores) mean += x / n;
  for (double& x : scores) {
    x -= mean;
    squares += x * x;
  }
  const double deviation = n > 1 ? std::sqrt(squares / (n - 1)) : 0;
  for (double& x : scores) x /= std::max(deviation, 1e-6);
}

class Compactor final : public ScoredEviction {
 public:
  Compactor(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        chunk_(params.count("chunk")),
        sketch_(params.count("sketch")),
        blend_(params.real("blend")) {}

 private:
  /// What is protected takes no part and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    const std::size_t n = prompt.length(), first = prompt.sinks(rule().protection.sinks);
    const RowRange rows{first, std::max(first, n - std::min(n, rule().protection.window))};
    std::vector<double> out(n);
    if (rows.size() == 0) return out;
    std::vector<double> attended =
        non_causal_attention(prompt, rows, unit().group, chunk_, 1, Pooling::parse("avg:3"));
    standardise(attended);
    std::vector<double> leverage(rows.size());
    if (blend_ > 0) {
      leverage = key_leverages(prompt, rows, sketch_,
                               combine({unit().seed, static_cast<std::uint64_t>(unit().layer),
                                        static_cast<std::uint64_t>(unit().first_kv_head)}));
      standardise(leverage);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) out[rows.first + i] = blend_ * leverage[i] + attended[i];
    return out;
  }

  std::size_t chunk_, sketch_;
  double blend_;
};

/// Logits of every query with its chunk's keys; keys before rotation times the sketch, their moments, and a
/// triangular solution for each.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double tokens = real(shape.kv_heads) * real(shape.prompt), dim = real(shape.head_dim);
  const double pairs =
      real(shape.query_heads) * real(shape.prompt) * real(std::min(params.count("chunk"), shape.prompt));
  const std::size_t sketch = params.count("sketch");
  const double columns = sketch > 0 ? real(sketch) : dim;
  Work scores = over_values(shape, shape.prompt, 2) + pooling(shape, 3) +
                over_keys(shape, shape.prompt, 1 + kRotationOps);
  scores.flops += 2 * dim * pairs + tokens * (2 * dim * columns + 2 * columns * columns);
  scores.ops += 5 * pairs + 4 * tokens + real(shape.kv_heads) * columns * columns * columns / 3;
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "compactor",
      .summary =
          "keeps keys that point away from the others and what stretches of the prompt attend in themselves",
      .paper =
          "Chari, Van Durme, Compactor: Calibrated Query-Agnostic KV Cache Compression with Approximate "
          "Leverage Scores, arXiv 2025, https://arxiv.org/abs/2507.08143",
      .details =
          "blend times the leverage of a key plus what non_causal scores, each less its mean and by its standard "
          "deviation over the head's unprotected tokens. Leverage: keys before rotation, less their mean, times a "
          "Gaussian sketch, x (X'X + 0.01)^-1 x'; sketch=0 takes the keys themselves. Generated tokens are "
          "appended.",
      .departures = {{"kvpress: means and deviations over all heads of the layer", "over those of the head"},
                     {"kvpress: blend is the share that is removed",
                      "a number, 0.35 as where kvpress has none"},
                     {"kvpress: protected tokens get the highest score of all", "they stay"}},
      .params = {real_param("blend", "0.35", {0, 100}, "weight of leverage; attention has 1"),
                 count_param("sketch", "48", {0, 1024},
                             "Gaussian directions that keys are multiplied with; 0: none"),
                 count_param("chunk", "256", {1, 1 << 20}, "rows and keys that meet", "tokens"),
                 sinks_param(8), window_param(4), granularity_param(), ranked_tie_param()},
      .needs = {.keys = true, .values = true, .queries = true, .positions = true},
      .randomised = true,
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Compactor>}};
}

}  // namespace kvsim::policy::compactor
