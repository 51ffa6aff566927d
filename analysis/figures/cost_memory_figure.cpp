// Bytes by what they are for: when the prefill needs most, and at the end.
#include "analysis/figures/cost_view.hpp"

namespace kvsim::analysis {
namespace {

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const std::vector<std::string> weights{"weights_bytes"}, reserved{"reserved_bytes"};
  return cost_bars(
      tables, choice,
      {.figure = "cost-memory",
       .bars = {{", prefill",
                 {weights,
                  {"prefill_cache_bytes"},
                  {"prefill_activation_bytes"},
                  {"prefill_scratch_bytes"},
                  reserved}},
                {", at the end",
                 {weights, {"cache_bytes"}, {"activation_bytes"}, {"scratch_bytes"}, reserved}}},
       .parts = {"weights", "cache", "activations", "scratch of the policy", "reserved by the runtime"},
       .axis = "GiB per device",
       .unit = 1 / kGibibyte,
       .limit = "machine_bytes",
       .title = "Memory",
       .reading =
           "A bar is what one device holds, at the moment of the prefill that needs most and after the "
           "last token; the line is the machine's memory."});
}

}  // namespace

FigureKind cost_memory_figure() {
  return {"cost-memory", "bytes by what they are for, when the prefill needs most and at the end",
          "rows of kvsim cost estimate", build, "cost"};
}

}  // namespace kvsim::analysis
