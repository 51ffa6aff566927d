// Accumulated attention that decays with age.
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/accumulated_attention.hpp"

namespace kvsim::policy::a2sf {

PolicySpec spec() {
  return {
      .name = "a2sf",
      .summary = "keeps the tokens with the most accumulated attention, older attention counting less",
      .paper =
          "Jo, Shin, A2SF: Accumulative Attention Scoring with Forgetting Factor for Token Pruning in "
          "Transformer Decoder, arXiv 2024, https://arxiv.org/abs/2407.20485",
      .details =
          "Score: A = a + alpha * A for every row a, in the prompt and while decoding, so a row counts "
          "alpha^n after n further rows; averaged over the unit's query heads. The whole budget is ranked: "
          "nothing is protected. alpha=0 is tova(unit=lane), alpha=1 is h2o(recent=0). The paper finds 0.1 "
          "to 0.3 best for most tasks.",
      .departures = {{"authors' present code: the prompt alone is ranked, with a window of 16 and alpha 0.95",
                      "a2sf.repo; the paper's rule is the default"}},
      .params = {real_param("alpha", "0.1", {0, 1},
                            "forgetting factor: what is left of a row's weight one row later"),
                 recent_param("0"), sinks_param(0), window_param(0), decode_param(), feedback_param(),
                 unit_param("lane"), granularity_param(), phase_param(), prompt_param(), tie_param()},
      .needs = {.prompt_rows = RowNeed::all, .decode_rows = true},
      .needs_of = accumulation_needs,
      .cost =
          [](const Params& params, const CostShape& shape) {
            return scored_cost(params, shape, accumulating(params, shape, Accumulation::of(params)));
          },
      .check = check_decode,
      .rule = EvictionRule{.scored = true, .make = made<AccumulatingEviction>}};
}

}  // namespace kvsim::policy::a2sf
