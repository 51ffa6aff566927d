// llama.cpp on an Apple M2 Pro, August 2023.
#include <iterator>

#include "sim/cost/latency.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace llama_cpp_numbers {

/// 32 weights in 4 bits and a scale in 16.
constexpr double kQ4 = 4 + 16.0 / 32;

std::vector<Check> checks(Inputs& inputs) {
  const Model small = find_model("llama-2-7b"), large = find_model("llama-2-13b");
  const Machine m2 = inputs.machine("m2-pro");
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
  const struct {
    const char* quantity;
    const char* published;
    double ours;
  } rows[] = {{"token, 7B in 16 bits", "92.2", milliseconds(small, 16)},
              {"token, 7B in q4_0", "28.9", milliseconds(small, kQ4)},
              {"token, 13B in q4_0", "50.7", milliseconds(large, kQ4)},
              {"token of prompt, 7B in 16 bits", "5.55", prompt(small, 16)},
              {"token of prompt, 7B in q4_0", "5.90", prompt(small, kQ4)},
              {"token of prompt, 13B in q4_0", "10.3", prompt(large, kQ4)}};
  for (std::size_t i = 0; i < std::size(rows); ++i)
    entries.of("llama.cpp on m2-pro", held_out(i))
        .within(aim::kStep, rows[i].quantity, rows[i].published, "ms", rows[i].ours);
  entries.not_derivable("token, 7B in 16 bits, processor instead of GPU", "117.8", "ms",
                        "what share of the shared memory's bandwidth its cores reach was not measured apart");
  entries.not_derivable("token, 7B in q4_0, processor instead of GPU", "47.8", "ms", "the same");
  return entries.take();
}

}  // namespace llama_cpp_numbers

Source llama_cpp_source() {
  return {
      "llama.cpp on an M2 Pro",
      "timings of August 2023, github.com/ggerganov/llama.cpp; M2 Pro with 19 GPU cores, 200 GB/s, 32 GB",
      {"The catalogue's compute and memory ceilings of this machine are fitted to the first, third and fifth "
       "row."},
      aim::kStep,
      llama_cpp_numbers::checks};
}

}  // namespace kvsim::cost
