// H2O in FlexGen on an A100: what its logs print.
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/validation/entries.hpp"

namespace kvsim::cost {
namespace {

/// The framework, fitted to the seven decode times: kernels reach 85 % of the bandwidth, and a step takes
/// this much besides.
constexpr double kBandwidthShare = 0.85, kStepOverhead = 10.5e-3;

struct Run {
  const char* model;
  std::uint64_t batch, prompt, generated;
  double ratio;           ///< heavy hitters, share of the prompt; as many recent tokens
  const char* cache;      ///< GiB of the full cache
  const char* full_peak;  ///< GiB; none: out of memory
  const char* h2o_peak;
  const char* saved;
  const char* full_step;  ///< ms
  const char* h2o_step;
  const char* ratio_of_steps;
};
constexpr Run kRuns[] = {
    {"opt-6.7b", 24, 2048, 2048, 0.2, "48.000", "74.76", "36.39", "38.37", "46.38", "24.12", "1.92"},
    {"opt-13b", 4, 5000, 5000, 0.2, "30.518", "70.92", "46.51", "24.41", "41.83", "30.17", "1.39"},
    {"opt-30b", 1, 7000, 1024, 0.11, "10.285", "77.58", "69.17", "8.41", "52.03", "45.68", "1.14"},
    {"opt-6.7b", 64, 2048, 2048, 0.2, "128", nullptr, "75.67", nullptr, nullptr, "49.76", nullptr}};

std::uint64_t kept(const Run& run) {
  return 2 * static_cast<std::uint64_t>(std::floor(run.ratio * static_cast<double>(run.prompt)));
}

std::string label(const Run& run) {
  return std::string(find_model(run.model).name) + ", batch " + std::to_string(run.batch) + ", " +
         std::to_string(run.prompt) + " + " + std::to_string(run.generated);
}

/// GiB when a prefill needs most. FlexGen allocates the cache it will need before.
double peak(const Model& model, const Run& run, std::uint64_t after_prompt, std::uint64_t limit) {
  Serving serving = serve(run.prompt, run.generated, run.batch);
  serving.runtime.attention = Attention::eager;
  serving.layout.preallocated = true;
  const Holding held = evenly(model, model.kv_heads, after_prompt, limit);
  return static_cast<double>(prefill_peak(model, Machine{}, serving, held, policy::Cost{}).total()) / kGiB;
}

double step_ms(const Model& model, const Machine& machine, const Run& run, std::uint64_t held,
               std::uint64_t limit) {
  return 1e3 * latency(model, machine, serve(run.prompt, run.generated, run.batch),
                       evenly(model, model.kv_heads, held, limit), policy::Cost{})
                   .mean_step.seconds();
}

/// FlexGen counts no learned positions, one of the three biases of queries, keys and values, no last norm,
/// and a bias of the embedding.
double flexgen_model_bytes(Model model) {
  model.learned_positions = 0;
  const double left_out = 2 * static_cast<double>(2 * model.layers * model.hidden + 2 * model.hidden);
  const double embedding_bias = 2 * static_cast<double>(model.vocab);
  return static_cast<double>(weight_bytes(model, Runtime{}, 1)) - left_out + embedding_bias;
}

void sizes(Entries& entries) {
  constexpr struct {
    const char* model;
    const char* size;
  } kSizes[] = {{"opt-6.7b", "12.386"}, {"opt-13b", "23.921"}, {"opt-30b", "55.803"}};
  for (const auto& row : kSizes)
    entries.exact(std::string("model size, ") + row.model, row.size, "GB",
                  flexgen_model_bytes(find_model(row.model)) / kGiB,
                  "without what FlexGen's count leaves out: positions, two of three biases, the last norm");
}

void memory(Entries& entries) {
  for (const Run& run : kRuns) {
    const Model model = find_model(run.model);
    const std::uint64_t all = run.prompt + run.generated;
    const double full_cache = cache_bytes(model, all, run.batch) / kGiB;
    const double saved = full_cache - cache_bytes(model, kept(run), run.batch) / kGiB;
    entries.exact("cache size, " + label(run), run.cache, "GB", full_cache);
    if (run.full_peak) {
      entries.within(0.03, "peak, full cache, " + label(run), run.full_peak, "GB",
                     peak(model, run, run.prompt, kNoLimit));
      entries.within(0.0125, "saved by H2O, " + label(run), run.saved, "GB", saved,
                     "difference of the printed peaks; no free constant");
    }
    entries.within(0.03, "peak, H2O, " + label(run), run.h2o_peak, "GB",
                   peak(model, run, kept(run), kept(run)));
  }
}

/// The machine under the framework.
Machine flexgen_on(Machine machine, const Model& model) {
  machine.ceilings.memory = machine.ceilings.attention_memory = kBandwidthShare;
  machine.ceilings.launch = machine.ceilings.attention_sequence = 0;
  machine.ceilings.attention_launch = kStepOverhead / static_cast<double>(model.layers);
  return machine;
}

void times(Entries& entries) {
  entries.subject(Subject::time);
  const Machine a100 = find_machine("a100-80-sxm");
  const Machine data_sheet = ideal(a100.matrix_rate, a100.bandwidth);
  double errors = 0;
  std::size_t steps = 0;
  const auto step = [&](const std::string& name, const char* published, double ours) {
    entries.within(0.31, "decode step, " + name, published, "ms", ours);
    errors += std::abs(relative_error(entries.last()));
    ++steps;
  };
  for (const Run& run : kRuns) {
    const Model model = find_model(run.model);
    const Machine framework = flexgen_on(a100, model);
    if (run.full_step)
      step("full cache, " + label(run), run.full_step, step_ms(model, framework, run, run.prompt, kNoLimit));
    step("H2O, " + label(run), run.h2o_step, step_ms(model, framework, run, kept(run), kept(run)));
    if (run.full_step)
      entries.within(0.15, "decode step, full cache over H2O, " + label(run), run.ratio_of_steps, "x",
                     step_ms(model, data_sheet, run, run.prompt, kNoLimit) /
                         step_ms(model, data_sheet, run, kept(run), kept(run)),
                     "data sheet rates, nothing fitted");
  }
  entries.at_most("mean error of the " + std::to_string(steps) + " decode steps", "7.3", "%",
                  100 * errors / static_cast<double>(steps), "what calibration reached");
}

std::vector<Check> checks(const policy::Registry&) {
  Entries entries(Evidence::verified);
  sizes(entries);
  memory(entries);
  times(entries);
  return entries.take();
}

}  // namespace

Source h2o_source() {
  return {
      "H2O in FlexGen",
      "Zhang, Sheng, Zhou, Chen, Zheng, Cai, Song, Tian, Re, Barrett, Wang, Chen, H2O, NeurIPS 2023; logs "
      "benchmark/h2o/a100_80 of github.com/FMInference/H2O",
      {"GB in the logs is GiB. H2O keeps twice floor(ratio * prompt) tokens, and its logs are those with the "
       "lower peak: they name no command.",
       "Peaks: weights, the cache allocated before the prefill, the prompt's keys and values of the layer in "
       "work, two fp16 copies of its score matrix and its hidden states.",
       "Decode: 85 % of the bandwidth and 10.5 ms per step, one pair for all seven runs, fitted to them."},
      0.079,
      checks};
}

}  // namespace kvsim::cost
