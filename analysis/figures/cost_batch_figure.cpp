// What a larger batch brings and costs.
#include "analysis/figures/cost_view.hpp"

namespace kvsim::analysis {
namespace {

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  return cost_curves(
      tables, choice,
      {.figure = "cost-batch",
       .x = "batch",
       .axis = {.label = "batch", .log = true, .at_values = true, .whole = true},
       .panels = {{"throughput", "tokens_per_second", "tokens/s"},
                  {"time per token", "tpot_seconds", "ms", kPerMilli},
                  {"peak of memory", "peak_bytes", "GiB per device", 1 / kGibibyte, true, "machine_bytes"}},
       .title = "What a larger batch brings and costs",
       .reading = "A curve is a policy, as far as its peak fits the machine, whose memory is the "
                  "line; throughput counts the tokens that all sequences "
                  "generate, their prefill included."});
}

}  // namespace

FigureKind cost_batch_figure() {
  return {"cost-batch", "throughput, time per token and memory over the batch",
          "rows of kvsim cost estimate with several batches (--sweep batch=...)", build, "cost"};
}

}  // namespace kvsim::analysis
