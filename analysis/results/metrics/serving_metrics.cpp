#include "analysis/results/metrics/families.hpp"

namespace kvsim::analysis {

std::vector<Metric> serving_metrics() {
  return {
      {.key = "cache_bytes",
       .unit = "bytes",
       .meaning = "cache after the last step in fp16, the policy's own data included (kvsim cost)",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.at_end.cache(); },
       .console = {.heading = "cache at end", .show = Console::Show::bytes}},
      {.key = "peak_bytes",
       .unit = "bytes",
       .meaning = "most that is needed at once, weights and activations included",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.peak(); }},
      {.key = "ttft_seconds",
       .unit = "s",
       .meaning = "modelled time to the first token, the policy's work included",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.time.first_token; },
       .console = {.heading = "TTFT ms", .show = Console::Show::milliseconds}},
      {.key = "tpot_seconds",
       .unit = "s",
       .meaning = "modelled time per output token after the first, mean",
       .price = [](const cost::Estimate& estimate) -> Value { return estimate.time.per_token; },
       .console = {.heading = "TPOT ms", .show = Console::Show::milliseconds}},
  };
}

}  // namespace kvsim::analysis
