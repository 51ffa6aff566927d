// Matrix products of one layer on three devices, as Vidur timed them.
#include <charconv>
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/validation/layer_timings.hpp"

namespace kvsim::cost {
namespace {

double linear_ms(const Model& model, const Machine& machine, std::uint64_t tokens) {
  const PassTime pass = pass_time(model, machine, serve(tokens, 1, 1), tokens, 0, false);
  return 1e3 * pass[OpClass::linear].seconds / static_cast<double>(model.layers);
}

std::string shortest(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

/// 64 MiB of hidden states between the devices of a DGX.
void all_reduces(Entries& entries) {
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
    const PassTime pass = pass_time(model, find_machine(row.machine), serving, kTokens, 0, false);
    entries.within(
        0.25,
        std::string("all-reduce of 64 MiB, ") + std::to_string(row.devices) + " devices, " + row.machine,
        row.microseconds, "us",
        1e6 * pass[OpClass::communication].seconds / static_cast<double>(2 * model.layers));
  }
}

std::vector<Check> checks(const policy::Registry&) {
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  timed_layers(entries, "llama-2-7b", "a100-80-sxm", a100_llama_2_7b(), "5.5");
  timed_layers(entries, "llama-3-8b", "a100-80-sxm", a100_llama_3_8b(), "6.2");
  timed_layers(entries, "llama-2-7b", "h100-sxm", h100_llama_2_7b(), "7.3");
  timed_layers(entries, "llama-2-7b", "a40", a40_llama_2_7b(), "6.1");
  all_reduces(entries);
  return entries.take();
}

}  // namespace

void timed_layers(Entries& entries, const std::string& model_name, const std::string& machine_name,
                  std::span<const LayerTiming> timings, const char* error) {
  constexpr std::size_t kEvery = 24;
  const Model model = find_model(model_name);
  const Machine machine = find_machine(machine_name);
  const std::string name = model_name + " on " + machine_name + ", matrix products of a layer, ";
  double sum = 0;
  for (std::size_t i = 0; i < timings.size(); ++i) {
    const double ours = linear_ms(model, machine, timings[i].tokens);
    const double measured = static_cast<double>(timings[i].milliseconds);
    sum += std::abs(ours / measured - 1);
    if (i % kEvery == 0)
      entries.within(0.2, name + std::to_string(timings[i].tokens) + " tokens",
                     shortest(timings[i].milliseconds), "ms", ours);
  }
  entries.at_most(
      name + "mean error over all " + std::to_string(timings.size()) + " timings", error, "%",
      100 * sum / static_cast<double>(timings.size()),
      "the printed bound is the mean error over single products of the fit that gave the ceilings");
}

Source vidur_source() {
  return {"Vidur, timed products",
          "Agrawal, Kedia, Mohan, Panwar, Kwatra, Gulavani, Ramjee, Tumanov, Vidur: A Large-Scale Simulation "
          "Framework For LLM Inference, MLSys 2024; medians shipped with github.com/microsoft/vidur (MIT)",
          {"Ceilings are the catalogue's, fitted to these devices, as are the rates of their links; single "
           "sizes are off by more than the mean where tiles do not fit.",
           "Rows are every 24th number of tokens that was timed; the mean error is over all."},
          0.073,
          checks};
}

}  // namespace kvsim::cost
