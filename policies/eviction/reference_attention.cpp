// Keeps what the prompt's own queries attend in the whole prompt, later tokens too.
#include <algorithm>
#include <cmath>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/reference_rows.hpp"

namespace kvsim::policy::reference_attention {
namespace {

class ReferenceAttention final : public ScoredEviction {
 public:
  ReferenceAttention(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        queries_(ReferenceQueries::of(params)),
        largest_(params.is("score", "max")),
        squares_(params.is("score", "rms")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const ReferenceRows reference(prompt, unit(), 0, queries_);
    std::vector<double> out(prompt.length()), row(prompt.length());
    for (std::size_t i = 0; i < reference.rows(); ++i) {
      const double sum = reference.find(i, row);
      for (std::size_t j = 0; j < out.size(); ++j) {
        const double paid = row[j] / sum;
        out[j] = largest_ ? std::max(out[j], paid) : out[j] + (squares_ ? paid * paid : paid);
      }
    }
    const auto n = static_cast<double>(reference.rows());
    if (!largest_)
      for (double& x : out) x = squares_ ? std::sqrt(x / n) : x / n;
    return out;
  }

  ReferenceQueries queries_;
  bool largest_, squares_;
};

/// A softmax over the prompt for each row.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double pairs =
      real(reference_rows(shape.prompt, params.count("rows"))) * real(shape.query_heads) * real(shape.prompt);
  Cost out = scored_cost(params, shape,
                         prompt_scoring(0, over_keys(shape, shape.prompt, 0) + softmax_of(shape, pairs)));
  out.repeated_at_once = ReferenceQueries::repeated_at_once(params);
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "reference_attention",
      .summary = "keeps what the prompt's queries attend in the whole prompt, later tokens too",
      .paper =
          "Zweiger, Fu, Guo, Kim, Fast KV Compaction via Attention Matching, arXiv 2026, "
          "https://arxiv.org/abs/2602.16284",
      .details =
          "How Attention Matching chooses keys (highest attention). Queries of the prompt, or of the model repeating "
          "it (queries=), of all query heads of a KV head together, attend every key of the prompt, later ones "
          "too. A key's score is the root mean "
          "square of the attention it gets, its maximum or its mean. fitted_values is what the method does with "
          "the keys. A sink of the model takes no part. Generated tokens are appended.",
      .departures =
          {{"paper: queries of the model repeating the text and answering questions that it makes up; "
            "the code can take those of the prompt instead (context prefill)",
            "those of the prompt; queries=run: of the model repeating it; no questions"},
           {"authors' code: draws some of the queries at random", "rows= takes them spread evenly"},
           {"authors' code: a class of its own takes the maximum, every configuration the root mean "
            "square",
            "score=rms; score=max"},
           {"authors' code: a chat template's tokens stay and take no part",
            "they compete; sinks= and window= keep some"}},
      .params = {choice_param("score", "rms", {"rms", "max", "mean"},
                              "of the attention a key gets, over all rows"),
                 reference_queries_param(), reference_rows_param(), sinks_param(0), window_param(0),
                 ranked_tie_param()},
      .needs = {.keys = true, .queries = true},
      .needs_of = [](const Params& params) { return ReferenceQueries::needs(params, {.keys = true}); },
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<ReferenceAttention>}};
}

}  // namespace kvsim::policy::reference_attention
