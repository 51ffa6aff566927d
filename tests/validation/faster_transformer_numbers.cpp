// A 13B model under FasterTransformer, one and two A100.
#include "sim/cost/latency.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace faster_transformer_numbers {

struct Run {
  std::uint64_t degree;
  const char* prefill;  ///< ms
  const char* step;
  const char* total;
};
constexpr Run kRuns[] = {{1, "63.17", "22.0", "283.6"}, {2, "45.45", "13.5", "180.9"}};

std::vector<Check> checks(Inputs& inputs) {
  const Model model = find_model("opt-13b");
  const Machine a100 = inputs.machine("a100-40-sxm");
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  for (const Run& run : kRuns) {
    Serving serving = serve(512, 10, 1);
    serving.tensor_parallel = run.degree;
    const Latency ours = latency(model, a100, serving, evenly(model, model.kv_heads, 512), {});
    const std::string name = ", 13B, 512 + 10, " + std::to_string(run.degree) + " A100-40";
    const double prefill = 1e3 * ours.prefill.seconds(), step = 1e3 * ours.mean_step.seconds();
    entries.within(aim::kStep, "prefill" + name, run.prefill, "ms", prefill);
    entries.within(aim::kStep, "decode step" + name, run.step, "ms", step);
    entries.within(aim::kStep, "prefill and ten steps" + name, run.total, "ms", prefill + 10 * step);
  }
  return entries.take();
}

}  // namespace faster_transformer_numbers

Source faster_transformer_source() {
  return {"FasterTransformer",
          "measurements shipped with github.com/cli99/llm-analysis; 13B model in fp16",
          {"The shape is that of OPT-13B. The machine is the catalogue's as it is, its ceilings fitted to "
           "measurements of another A100 and another framework."},
          aim::kStep,
          faster_transformer_numbers::checks};
}

}  // namespace kvsim::cost
