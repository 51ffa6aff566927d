// Attention sinks and a sliding window.
#include "policies/api/score_policy.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/recency.hpp"

namespace kvsim::policy {

PolicySpec streaming_llm_spec() {
  return {
      .name = "streaming_llm",
      .aliases = {"streamingllm"},
      .kind = Kind::eviction,
      .summary = "keeps the first tokens (attention sinks) and the newest ones",
      .paper =
          "Xiao, Tian, Chen, Han, Lewis, Efficient Streaming Language Models with Attention Sinks, ICLR "
          "2024, https://arxiv.org/abs/2309.17453",
      .details = "The first `sinks` positions and the last B - sinks; the sinks count inside the budget.",
      .departures = {{"paper: positions are numbered again inside the cache",
                      "positions are kept: recorded keys are already rotated"},
                     {"KVCache-Factory: a long prefix and the last w tokens", "streaming_llm(sinks=B-w)"}},
      .params = {sinks_param(4)},
      .floor = [](const Params& params) { return params.count("sinks") + 1; },
      .make_eviction = [](const Params& params,
                          const Unit&) { return std::make_unique<Recency>(params.count("sinks")); }};
}

}  // namespace kvsim::policy
