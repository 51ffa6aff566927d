// What a longer prompt costs.
#include "analysis/figures/cost_view.hpp"

namespace kvsim::analysis {
namespace {

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  return cost_curves(
      tables, choice,
      {.figure = "cost-context",
       .x = "prompt",
       .axis = token_axis("prompt"),
       .x_unit = 1.0 / 1024,
       .panels = {{"first token", "ttft_seconds", "s", 1, true},
                  {"time per token", "tpot_seconds", "ms", kPerMilli},
                  {"peak of memory", "peak_bytes", "GiB per device", 1 / kGibibyte, true, "machine_bytes"}},
       .title = "What a longer prompt costs",
       .reading = "A curve is a policy, as far as its peak fits the machine, whose memory is the line; "
                  "lower is better in every panel."});
}

}  // namespace

FigureKind cost_context_figure() {
  return {"cost-context", "time to the first token, per token, and memory over the length of the prompt",
          "rows of kvsim cost estimate with several prompts (--sweep prompt-tokens=...)", build, "cost"};
}

}  // namespace kvsim::analysis
