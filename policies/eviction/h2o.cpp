// Keeps heavy hitters by accumulated attention, and recent tokens.
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/accumulated_attention.hpp"

namespace kvsim::policy::h2o {

PolicySpec spec() {
  return {
      .name = "h2o",
      .summary = "keeps heavy hitters, the tokens with the most accumulated attention, and recent tokens",
      .paper =
          "Zhang, Sheng, Zhou, Chen, Zheng, Cai, Song, Tian, Re, Barrett, Wang, Chen, H2O: Heavy-Hitter "
          "Oracle for Efficient Generative Inference of Large Language Models, NeurIPS 2023, "
          "https://arxiv.org/abs/2306.14048",
      .details =
          "Score: attention received from every prompt row and every later query, averaged over the unit's "
          "query heads. The last floor(recent * B) positions stay, the rest of the budget goes to the "
          "highest scores, and a token once dropped never returns. Recent tokens come on top of `window`, as "
          "far as sinks leave room. normalise=mean divides by the number of rows that saw the position, "
          "in layers with a sliding window at most its width, which takes away the advantage of age; "
          "prompt_weight=mean or visible lets the whole prompt count as one "
          "row. Without recent tokens the score freezes: a new token has had no time to collect any.",
      .departures = {{"paper: the printed pseudo-code scores with the current row alone",
                      "attention is accumulated, as text and code do; the other is h2o.alg1"},
                     {"paper: the prompt passes through the cache token by token",
                      "the prompt is ranked when it ends, as in all codes; h2o.stream"},
                     {"authors' code: heavy and recent sizes fixed from the prompt's length, or absolute",
                      "a share of the budget: recent"},
                     {"authors' code: per query head, no grouped queries",
                      "mean over the heads that share a KV head"},
                     {"authors' code: attends B + 1, then drops one",
                      "drops before attending; h2o.real_drop"},
                     {"kvpress: divides by all rows since the position, seen through a sliding window or not",
                      "normalise=mean_since; h2o.kvpress"},
                     {"cold-compress: a prompt longer than the budget is first cut by a rule like SnapKV's",
                      "h2o.cold_compress ranks the prompt by its own score"}},
      .params = {recent_param("0.5"), sinks_param(0), window_param(0), rows_param(), prompt_weight_param(),
                 normalise_param(), decode_param(), feedback_param(), unit_param("lane"), granularity_param(),
                 phase_param(), prompt_param(), tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},
      .needs_of = accumulation_needs,
      .cost =
          [](const Params& params, const CostShape& shape) {
            return scored_cost(params, shape, accumulating(params, shape, Accumulation::of(params)));
          },
      .check = check_decode,
      .rule = EvictionRule{.scored = true, .make = made<AccumulatingEviction>}};
}

}  // namespace kvsim::policy::h2o
