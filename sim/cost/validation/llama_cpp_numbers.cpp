// llama.cpp on an Apple M2 Pro, August 2023.
#include "sim/cost/latency.hpp"
#include "sim/cost/validation/entries.hpp"

namespace kvsim::cost {
namespace {

/// 32 weights in 4 bits and a scale in 16.
constexpr double kQ4 = 4 + 16.0 / 32;

std::vector<Check> checks(const policy::Registry&) {
  const Model small = find_model("llama-2-7b"), large = find_model("llama-2-13b");
  const Machine m2 = find_machine("m2-pro");
  const auto milliseconds = [&](const Model& model, double bits) {
    Serving serving = serve(1, 128, 1);
    serving.runtime.weight_bits = bits;
    const PassTime step = latency(model, m2, serving, evenly(model, model.kv_heads, 1), {}).mean_step;
    // Bound by memory, so its time shrinks as its bytes do.
    const double head_spared = (1 - bits / 16) * step[OpClass::head].seconds;
    return 1e3 * (step.seconds() - head_spared);
  };
  const auto prompt = [&](const Model& model, double bits) {
    Serving serving = serve(512, 1, 1);
    serving.runtime.weight_bits = bits;
    return 1e3 * prefill_time(model, m2, serving, evenly(model, model.kv_heads, 512), {}).seconds() / 512;
  };
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  entries.within(0.1, "token, 7B in 16 bits", "92.2", "ms", milliseconds(small, 16));
  entries.within(0.1, "token, 7B in q4_0", "28.9", "ms", milliseconds(small, kQ4));
  entries.within(0.1, "token, 13B in q4_0", "50.7", "ms", milliseconds(large, kQ4));
  entries.within(0.1, "token of prompt, 7B in 16 bits", "5.55", "ms", prompt(small, 16));
  entries.within(0.1, "token of prompt, 7B in q4_0", "5.90", "ms", prompt(small, kQ4));
  entries.within(0.1, "token of prompt, 13B in q4_0", "10.3", "ms", prompt(large, kQ4));
  entries.not_derivable("token, 7B in 16 bits, processor instead of GPU", "117.8", "ms",
                        "what share of the shared memory's bandwidth its cores reach was not measured apart");
  entries.not_derivable("token, 7B in q4_0, processor instead of GPU", "47.8", "ms", "the same");
  return entries.take();
}

}  // namespace

Source llama_cpp_source() {
  return {"llama.cpp on an M2 Pro",
          "timings of August 2023, github.com/ggerganov/llama.cpp; M2 Pro with 19 GPU cores, 200 GB/s, 32 GB",
          {"The catalogue's ceilings of this machine were chosen on the three 16-bit and q4_0 rows of the 7B "
           "and 13B models."},
          0.1,
          checks};
}

}  // namespace kvsim::cost
