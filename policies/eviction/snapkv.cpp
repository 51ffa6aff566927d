// Ranks by the attention from the end of the prompt, smoothed along positions.
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/window_rows.hpp"

namespace kvsim::policy::snapkv {

PolicySpec spec() {
  return {
      .name = "snapkv",
      .summary =
          "keeps what the last prompt rows attend, smoothed over neighbours; compresses the prompt once",
      .paper =
          "Li, Huang, Yang, Venkitesh, Locatelli, Ye, Cai, Lewis, Chen, SnapKV: LLM Knows What You are "
          "Looking for Before Generation, NeurIPS 2024, https://arxiv.org/abs/2404.14469",
      .details =
          "Score of a position before the window: attention from the last `window` rows (softmax over every "
          "visible key), averaged over those rows, pooled along positions within each query head, then "
          "reduced over the unit's query heads (the order matters for max pooling only). The window itself "
          "stays. Generated tokens are appended and never dropped. Defaults are the authors' code's; their "
          "LongBench runs use pool=max:7 (snapkv.longbench).",
      .departures = {{"authors' code: selects per query head and stores repeated KV heads",
                      "one set per KV head, shared by its query heads"},
                     {"kvpress and KVCache-Factory: windows of 64 and 8, the latter with max:7",
                      "the authors' 32; snapkv.kvpress, snapkv.factory"},
                     {"cold-compress: no zero padding, four sinks", "snapkv.cold_compress"}},
      .params = {window_param(32, 1),
                 pool_param(
                     "pool", "avg:5",
                     "smoothing along positions; nopad: zeros beyond the ends do not count in the average"),
                 group_param(), unit_param("lane"), sinks_param(0), granularity_param(), ranked_tie_param()},
      .needs = {.prompt_rows = RowNeed::window},
      .cost =
          [](const Params& params, const CostShape& shape) {
            return scored_cost(params, shape,
                               window_scoring(shape, params.count("window"), params.word("pool")));
          },
      .rule = EvictionRule{.scored = true, .make = made<WindowScored>}};
}

}  // namespace kvsim::policy::snapkv
