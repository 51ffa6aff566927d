// Keeps attention sinks and a sliding window.
#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/recency.hpp"

namespace kvsim::policy::streaming_llm {

PolicySpec spec() {
  return {
      .name = "streaming_llm",
      .summary = "keeps the first tokens (attention sinks) and the newest ones",
      .paper =
          "Xiao, Tian, Chen, Han, Lewis, Efficient Streaming Language Models with Attention Sinks, ICLR "
          "2024, https://arxiv.org/abs/2309.17453",
      .details =
          "The first `sinks` positions and the last B - sinks; the sinks count inside the budget. With a "
          "window, the last `window` positions and the first B - window.",
      .departures =
          {{"paper: positions are numbered again inside the cache",
            "a replay keeps them, recorded keys being rotated already; a running model counts as the "
            "paper does with --positions cache-step"},
           {"KVCache-Factory: a long prefix and the last w tokens", "streaming_llm.factory"}},
      .params = {sinks_param(4),
                 count_param(
                     "window", "0", {0, 1 << 30},
                     "how many of the newest stay, the rest of the budget going to the first; 0: all that "
                     "the sinks leave",
                     "tokens"),
                 decode_param()},
      .cost =
          [](const Params& params, const CostShape& shape) {
            Cost out = recency_cost(shape);
            out.appends = !params.flag("decode");
            return out;
          },
      .rule = EvictionRule{.make = made<Recency>}};
}

}  // namespace kvsim::policy::streaming_llm
