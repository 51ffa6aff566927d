// Matrix products of one layer on three devices, as Vidur timed them.
#include "sim/cost/latency.hpp"
#include "tests/validation/layer_timings.hpp"

namespace kvsim::cost {
namespace vidur_numbers {

/// 64 MiB of hidden states between the devices of a DGX.
void all_reduces(Entries& entries, Inputs& inputs) {
  constexpr struct {
    const char* machine;
    std::uint64_t devices;
    const char* microseconds;
  } kRows[] = {{"a100-80-sxm", 2, "430"}, {"a100-80-sxm", 4, "603"}, {"a100-80-sxm", 8, "675"},
               {"h100-sxm", 2, "245"},    {"h100-sxm", 4, "318"},    {"h100-sxm", 8, "322"}};
  const Model model = find_model("llama-2-7b");
  constexpr std::uint64_t kTokens = 8192;  // of 8 KiB
  for (const auto& row : kRows) {
    Serving serving = serve(kTokens, 1, 1);
    serving.tensor_parallel = row.devices;
    const PassTime pass = pass_time(model, inputs.machine(row.machine), serving, kTokens, 0, false);
    entries.of(std::string("all-reduces on ") + row.machine);
    entries.within(
        0.25,
        std::string("all-reduce of 64 MiB, ") + std::to_string(row.devices) + " devices, " + row.machine,
        row.microseconds, "us",
        1e6 * pass[OpClass::communication].seconds / static_cast<double>(2 * model.layers));
  }
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  timed_layers(entries, inputs, "llama-2-7b", "a100-80-sxm", a100_llama_2_7b());
  timed_layers(entries, inputs, "llama-3-8b", "a100-80-sxm", a100_llama_3_8b());
  timed_layers(entries, inputs, "llama-2-7b", "h100-sxm", h100_llama_2_7b());
  timed_layers(entries, inputs, "llama-2-7b", "a40", a40_llama_2_7b());
  all_reduces(entries, inputs);
  return entries.take();
}

}  // namespace vidur_numbers

Source vidur_source() {
  return {
      "Vidur, timed products",
      "Agrawal, Kedia, Mohan, Panwar, Kwatra, Gulavani, Ramjee, Tumanov, Vidur: A Large-Scale Simulation "
      "Framework For LLM Inference, MLSys 2024; medians shipped with github.com/microsoft/vidur (MIT)",
      {"Ceilings are the catalogue's, fitted to the first, third, fifth and so on of each device's timings; "
       "the others are held out. Single sizes are off by more than the mean where tiles do not fit.",
       "Rows are every 25th number of tokens that was timed; the mean errors are over all that are held "
       "out. The rates of links are fitted to all of these all-reduces."},
      aim::kProducts,
      vidur_numbers::checks};
}

}  // namespace kvsim::cost
