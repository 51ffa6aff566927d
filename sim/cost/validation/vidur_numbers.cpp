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

std::vector<Check> checks(const policy::Registry&) {
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  timed_layers(entries, "llama-2-7b", "a100-80-sxm", a100_llama_2_7b(), "5.5");
  timed_layers(entries, "llama-3-8b", "a100-80-sxm", a100_llama_3_8b(), "6.2");
  timed_layers(entries, "llama-2-7b", "h100-sxm", h100_llama_2_7b(), "7.3");
  timed_layers(entries, "llama-2-7b", "a40", a40_llama_2_7b(), "6.1");
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
      entries.within(0.25, name + std::to_string(timings[i].tokens) + " tokens",
                     shortest(timings[i].milliseconds), "ms", ours);
  }
  entries.at_most(
      name + "mean error over all " + std::to_string(timings.size()) + " timings", error, "%",
      100 * sum / static_cast<double>(timings.size()),
      "the printed bound is the mean error over single products of the fit that gave the ceilings");
}

Source vidur_source() {
  return {
      "Vidur, timed products",
      "Agrawal, Kedia, Mohan, Panwar, Kwatra, Gulavani, Ramjee, Tumanov, Vidur: A Large-Scale Simulation "
      "Framework "
      "For LLM Inference, MLSys 2024; medians shipped with github.com/microsoft/vidur (MIT)",
      {"Ceilings are the catalogue's, fitted to these devices; single sizes are off by up to a quarter where "
       "tiles do not fit.",
       "Rows are every 24th number of tokens that was timed; the mean error is over all."},
      0.073,
      checks};
}

}  // namespace kvsim::cost
