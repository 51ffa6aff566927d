// Keeps only the newest tokens.
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/recency.hpp"

namespace kvsim::policy::window {

PolicySpec spec() {
  return {.name = "window",
          .aliases = {"sliding_window"},
          .summary = "keeps the newest tokens: a sliding window as long as the budget",
          .details = "The last B positions. The same as streaming_llm(sinks=0).",
          .cost = [](const Params&, const CostShape& shape) { return recency_cost(shape); },
          .rule = EvictionRule{
              .make = [](const Params&, const CacheUnit&) { return std::make_unique<Recency>(0); }}};
}

}  // namespace kvsim::policy::window
