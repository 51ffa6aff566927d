// Ranks by the attention that future queries are expected to pay.

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/expected_queries.hpp"
#include "policies/parts/rows/logits.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::expected_attention {
namespace {

class ExpectedAttention final : public ScoredEviction {
 public:
  ExpectedAttention(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        sinks_(params.count("sinks")),
        future_(params.count("future")),
        covariance_(params.flag("covariance")),
        value_norm_(params.flag("value_norm")),
        epsilon_(params.real("epsilon")) {}

 private:
  /// Sinks are protected and need no score.
  std::vector<double> score(const Prompt& prompt) override {
    std::vector<double> out(prompt.length());
    const std::size_t sinks = prompt.sinks(sinks_);
    if (prompt.length() <= sinks) return out;
    const std::span<double> scores = std::span(out).subspan(sinks);
    const MatrixView keys = prompt.keys(0), values = prompt.values(0);
    std::vector<double> expected(scores.size());
    for (int head = 0; head < unit().group; ++head) {
      const ExpectedQueries queries(prompt.queries(head), sinks, prompt.first(), prompt.rotary(), future_,
                                    covariance_);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = queries.logit(keys.row(sinks + i), prompt.scale());
      softmax(expected);
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] += expected[i] / unit().group;
    }
    for (std::size_t i = 0; value_norm_ && i < scores.size(); ++i)
      scores[i] = (scores[i] + epsilon_) * euclidean_norm(values.row(sinks + i));
    return out;
  }

  std::size_t sinks_, future_;
  bool covariance_, value_norm_;
  double epsilon_;
};

/// Counts, per query head, the mean (and covariance) of its queries, a logit for each key, and a softmax.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double vectors = real(shape.query_heads) * real(shape.prompt),
               components = vectors * real(shape.head_dim);
  const double columns = params.flag("covariance") ? real(shape.head_dim) + 1 : 1;
  // One pass over all queries for their moments, one over all keys per query head for the logits.
  Work scores =
      2 *
      Work{.flops = 2 * components * columns, .bytes = components * real(shape.element_bytes), .launches = 1};
  scores = scores + Work{.ops = 5 * vectors, .launches = 1};
  if (params.flag("value_norm")) scores = scores + over_values(shape, shape.prompt, 2);
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "expected_attention",
      .summary = "keeps what queries drawn from the prompt's own distribution are expected to attend",
      .paper =
          "Devoto, Jeblick, Jegou, Expected Attention: KV Cache Compression by Estimating Attention from "
          "Future Queries Distribution, arXiv 2025, https://arxiv.org/abs/2510.00636",
      .details =
          "Per query head, mean and covariance of the prompt's queries before rotation, sinks left out, are "
          "turned by the average of the rotations at the next `future` positions. A key's logit is the "
          "expectation under that normal distribution, scale * mean.key + scale^2 / 2 * key' covariance key; "
          "the softmax over the prompt without sinks is averaged over the query heads, and the score is "
          "(that + epsilon) times the norm of the value. Generated tokens are appended.",
      .departures = {{"kvpress: computes query statistics from hidden states through the projection",
                      "from the recorded queries: the same numbers, and query-key normalisation is no "
                      "obstacle"}},
      .params = {count_param("future", "512", {1, 1 << 20},
                             "over how many positions to come rotations are averaged", "positions"),
                 flag_param("covariance", "true", "the spread of queries counts, not only their mean"),
                 flag_param("value_norm", "true",
                            "expected attention is multiplied by the norm of the value"),
                 real_param("epsilon", "0", {0, 1}, "added to expected attention before that"),
                 sinks_param(4), granularity_param(), ranked_tie_param()},
      .needs = {.keys = true, .values = true, .queries = true, .positions = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<ExpectedAttention>}};
}

}  // namespace kvsim::policy::expected_attention
