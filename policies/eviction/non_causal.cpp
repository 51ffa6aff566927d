// Ranks by attention inside stretches of the prompt, in which every token sees every other.
#include <algorithm>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/compactor_scores.hpp"

namespace kvsim::policy::non_causal {
namespace {

class NonCausal final : public ScoredEviction {
 public:
  NonCausal(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        chunk_(params.count("chunk")),
        pooling_(Pooling::parse(params.word("pool"))),
        scaled_(params.flag("scaled")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    return non_causal_attention(prompt, {0, prompt.length()}, unit().group, chunk_,
                                scaled_ ? prompt.scale() : 1, pooling_);
  }

  std::size_t chunk_;
  Pooling pooling_;
  bool scaled_;
};

/// Logits of every query with its chunk's keys, lengths of values, and pooling.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double pairs =
      real(shape.query_heads) * real(shape.prompt) * real(std::min(params.count("chunk"), shape.prompt));
  const Work scores = over_values(shape, shape.prompt, 2) +
                      pooling(shape, Pooling::parse(params.word("pool")).kernel) +
                      over_keys(shape, shape.prompt, 0) + softmax_of(shape, pairs);
  return scored_cost(params, shape, prompt_scoring(0, scores));
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "non_causal",
      .summary = "keeps what is attended inside stretches of the prompt without a causal mask",
      .paper =
          "Chari, Van Durme, Compactor: Calibrated Query-Agnostic KV Cache Compression with Approximate "
          "Leverage Scores, arXiv 2025, https://arxiv.org/abs/2507.08143",
      .details =
          "The part of Compactor that reads attention, as kvpress has it (NonCausalAttnPress). The prompt is "
          "cut into chunks. Inside each every row attends every key, later ones too: softmax of q k, not "
          "divided by the root of the head size. A key's score is the sum over the chunk's rows, the mean "
          "over the group's query heads, times the Euclidean norm of its value, averaged over neighbours. "
          "scaled takes the model's own scale. A cap or sink of the model is left out. Generated tokens are "
          "appended.",
      .departures = {{"kvpress: rows and keys that pad the last chunk take part with logits near 0",
                      "the last chunk is as long as it is"},
                     {"kvpress: scores less their mean, by their deviation over the layer's heads",
                      "as they are, which orders a head's tokens alike"}},
      .params = {count_param("chunk", "256", {1, 1 << 20}, "rows and keys that meet", "tokens"),
                 pool_param("pool", "avg:3", "smoothing along positions"),
                 flag_param("scaled", "false", "logits times the model's scale"), sinks_param(0),
                 granularity_param(), ranked_tie_param()},
      .needs = {.keys = true, .values = true, .queries = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<NonCausal>}};
}

}  // namespace kvsim::policy::non_causal
