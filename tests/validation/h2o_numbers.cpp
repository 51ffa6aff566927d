// H2O in FlexGen on an A100: the numbers of its logs.
#include <cmath>

#include "sim/base/number_text.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/relative_fit.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace h2o_numbers {

constexpr const char* kSteps = "H2O's logs, decode steps";
/// The two score matrices and the hidden states that the memory model counts for eager attention.
constexpr const char* kPeaks = "H2O's logs, peaks";

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
  bool misses_h2o_step = false;
};
constexpr Run kRuns[] = {
    {"opt-6.7b", 24, 2048, 2048, 0.2, "48.000", "74.76", "36.39", "38.37", "46.38", "24.12", "1.92", true},
    {"opt-13b", 4, 5000, 5000, 0.2, "30.518", "70.92", "46.51", "24.41", "41.83", "30.17", "1.39", true},
    {"opt-30b", 1, 7000, 1024, 0.11, "10.285", "77.58", "69.17", "8.41", "52.03", "45.68", "1.14"},
    {"opt-6.7b", 64, 2048, 2048, 0.2, "128", nullptr, "75.67", nullptr, nullptr, "49.76", nullptr}};

std::uint64_t kept(const Run& run) {
  return 2 * static_cast<std::uint64_t>(std::floor(run.ratio * static_cast<double>(run.prompt)));
}

std::string label(const Run& run) {
  return std::string(find_model(run.model).name) + ", batch " + std::to_string(run.batch) + ", " +
         std::to_string(run.prompt) + " + " + std::to_string(run.generated);
}

/// Returns the GiB at the moment when a prefill needs most. FlexGen allocates the whole cache in advance.
double peak(Inputs& inputs, const Model& model, const Run& run, std::uint64_t after_prompt,
            std::uint64_t limit) {
  Serving serving = serve(run.prompt, run.generated, run.batch);
  serving.runtime.attention = Attention::eager;
  serving.layout.preallocated = true;
  const Holding held = evenly(model, model.kv_heads, after_prompt, limit);
  const Memory memory = prefill_peak(model, Machine{}, serving, held, policy::Cost{});
  const double activations = inputs.fitted(kPeaks, static_cast<double>(memory.activations));
  return (static_cast<double>(memory.total() - memory.activations) + activations) / kGiB;
}

double step_ms(const Model& model, const Machine& machine, const Run& run, std::uint64_t held,
               std::uint64_t limit) {
  return 1e3 * latency(model, machine, serve(run.prompt, run.generated, run.batch),
                       evenly(model, model.kv_heads, held, limit), policy::Cost{})
                   .mean_step.seconds();
}

/// FlexGen's count omits learned positions and the last norm, has one of the three biases of queries, keys
/// and values, and adds a bias of the embedding.
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

void memory(Entries& entries, Inputs& inputs) {
  for (const Run& run : kRuns) {
    const Model model = find_model(run.model);
    const std::uint64_t all = run.prompt + run.generated;
    const double full_cache = cache_bytes(model, all, run.batch) / kGiB;
    const double saved = full_cache - cache_bytes(model, kept(run), run.batch) / kGiB;
    entries.of("").exact("cache size, " + label(run), run.cache, "GB", full_cache);
    if (run.full_peak) {
      entries.of(kPeaks).within(aim::kBytes, "peak, full cache, " + label(run), run.full_peak, "GB",
                                peak(inputs, model, run, run.prompt, kNoLimit));
      entries.of("").within(aim::kBytes, "saved by H2O, " + label(run), run.saved, "GB", saved,
                            "difference of the printed peaks; no free constant");
    }
    entries.of(kPeaks).within(aim::kBytes, "peak, H2O, " + label(run), run.h2o_peak, "GB",
                              peak(inputs, model, run, kept(run), kept(run)));
  }
}

/// A logged decode step.
struct Step {
  const Run* run;
  const char* cache;
  std::uint64_t held, limit;
  const char* milliseconds;
  bool missed;
};

std::vector<Step> steps() {
  std::vector<Step> out;
  for (const Run& run : kRuns) {
    if (run.full_step) out.push_back({&run, "full cache", run.prompt, kNoLimit, run.full_step, false});
    out.push_back({&run, "H2O", kept(run), kept(run), run.h2o_step, run.misses_h2o_step});
  }
  return out;
}

/// Times of steps under the framework: kernels reach a share of the bandwidth, and a step takes a constant
/// time besides, whatever it reads.
struct Framework {
  double bandwidth_share, step_overhead;
};

double step_ms(Machine machine, const Framework& framework, const Step& step) {
  const Model model = find_model(step.run->model);
  machine.ceilings.memory = machine.ceilings.attention_memory = framework.bandwidth_share;
  machine.ceilings.launch = machine.ceilings.attention_sequence = 0;
  machine.ceilings.attention_launch = framework.step_overhead / static_cast<double>(model.layers);
  return step_ms(model, machine, *step.run, step.held, step.limit);
}

/// Fitted to the steps that are not held out.
Framework fitted_framework(const Machine& machine, const std::vector<Step>& steps) {
  std::vector<const Step*> seen;
  std::vector<Measurement> measured;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (held_out(i)) continue;
    seen.push_back(&steps[i]);
    measured.push_back({number_of<double>(steps[i].milliseconds).value(), 1});
  }
  const auto predict = [&](std::span<const double> parameters, std::span<double> predicted) {
    for (std::size_t i = 0; i < seen.size(); ++i)
      predicted[i] = step_ms(machine, Framework{parameters[0], parameters[1]}, *seen[i]);
  };
  constexpr Framework kStart{0.8, 0.01};
  const RelativeFit fit =
      fit_relative({kStart.bandwidth_share, kStart.step_overhead}, measured, predict, kFitKnee, kFitHold);
  return {fit.parameters[0], fit.parameters[1]};
}

void times(Entries& entries, Inputs& inputs) {
  entries.subject(Subject::time);
  const Machine a100 = inputs.machine("a100-80-sxm");
  const std::vector<Step> logged = steps();
  const Framework fit = fitted_framework(a100, logged);
  const Framework framework{inputs.fitted(kSteps, fit.bandwidth_share),
                            inputs.fitted(kSteps, fit.step_overhead)};
  for (std::size_t i = 0; i < logged.size(); ++i)
    entries.of(kSteps, held_out(i))
        .within({held_out(i) ? aim::kStep : 0.31, logged[i].missed},
                std::string("decode step, ") + logged[i].cache + ", " + label(*logged[i].run),
                logged[i].milliseconds, "ms", step_ms(a100, framework, logged[i]));
  const Machine data_sheet = ideal(a100.matrix_rate, a100.bandwidth);
  for (const Run& run : kRuns)
    if (run.full_step)
      entries.within(aim::kDatasheet, "decode step, full cache over H2O, " + label(run), run.ratio_of_steps,
                     "x",
                     step_ms(find_model(run.model), data_sheet, run, run.prompt, kNoLimit) /
                         step_ms(find_model(run.model), data_sheet, run, kept(run), kept(run)),
                     "data sheet rates, nothing fitted");
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::verified);
  sizes(entries);
  memory(entries, inputs);
  times(entries, inputs);
  return entries.take();
}

}  // namespace h2o_numbers

Source h2o_source() {
  return {
      "H2O in FlexGen",
      "Zhang, Sheng, Zhou, Chen, Zheng, Cai, Song, Tian, Re, Barrett, Wang, Chen, H2O, NeurIPS 2023; logs "
      "benchmark/h2o/a100_80 of github.com/FMInference/H2O",
      {"GB in the logs is GiB. H2O keeps twice floor(ratio * prompt) tokens, and its logs are those with the "
       "lower peak: they name no command.",
       "Peaks: weights, the cache allocated before the prefill, the prompt's keys and values of the layer in "
       "work, two fp16 copies of its score matrix and its hidden states: a rule chosen on these peaks.",
       "Decode: a share of the bandwidth and a time per step, one pair for all seven runs, fitted to the "
       "first, third, fifth and seventh. It misses two of the other three by far: what four runs say of both "
       "constants does not carry over."},
      {},
      h2o_numbers::checks};
}

}  // namespace kvsim::cost
