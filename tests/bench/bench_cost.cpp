/// Times a sweep of 100,000 serving points, and compares its sums over steps with adding up every step.
/// Usage: bench_cost [pairs] [threads]
#include <cmath>
#include <cstdlib>
#include <string>

#include "policies/builtin.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/bench/paired.hpp"

using namespace kvsim;

namespace {

constexpr std::uint64_t kGenerated = 512;

/// 5 models, 10 policies, 10 contexts, 10 batches, 20 budgets.
struct Study {
  std::vector<policy::Composition> policies{};
  std::vector<cost::Model> models{};
  cost::Machine machine = cost::find_machine("a100-80-sxm");
  std::vector<cost::SweepPoint> points{};

  Study() {
    for (const char* name : {"full", "snapkv", "pyramidkv", "xkv", "h2o", "hashevict", "kvcrush", "tova",
                             "streaming_llm", "l2_norm"})
      policies.push_back(policy::parse_composition(name, policy::builtin()));
    for (const char* name : {"llama-2-7b", "llama-3-8b", "llama-3-70b", "mistral-7b-v0.2", "qwen2.5-7b"})
      models.push_back(cost::find_model(name));
    for (const cost::Model& model : models)
      for (const policy::Composition& policy : policies)
        for (std::uint64_t context = 1; context <= 10; ++context)
          for (std::uint64_t batch = 1; batch <= 10; ++batch)
            for (std::uint64_t budget = 1; budget <= 20; ++budget) {
              cost::SweepPoint point{&model, &machine, &policy, {}, 160 * budget};
              point.serving.prompt = 3200 * context;
              point.serving.generate = kGenerated;
              point.serving.batch = batch;
              points.push_back(point);
            }
  }
};

/// Returns the mean time of a step, with every step added up.
double step_by_step(const cost::SweepPoint& point) {
  const cost::Holding holding =
      cost::rule_holding(*point.composition, *point.model, 0, point.serving.prompt, kGenerated, point.budget);
  const policy::Cost cost =
      cost::cost_of(*point.composition, *point.model, point.serving.prompt, point.budget);
  double sum = 0;
  for (std::uint64_t step = 1; step < kGenerated; ++step)
    sum += cost::step_time(*point.model, *point.machine, point.serving, holding, cost, step).seconds();
  return sum / static_cast<double>(kGenerated - 1);
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 7;
  const unsigned threads = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 0;
  const Study study;
  std::vector<cost::SweepResult> results;
  double best = 1e9;
  for (int run = 0; run < pairs; ++run)
    best = std::min(best, bench::seconds([&] { results = cost::sweep(study.points, threads); }));
  for (const cost::SweepResult& result : results)
    if (!result.problem.empty()) {
      std::puts(result.problem.c_str());
      return 1;
    }
  std::printf("%zu points: %.3f s\n", results.size(), best);

  std::vector<cost::SweepPoint> sample;
  for (std::size_t i = 0; i < study.points.size(); i += 997) sample.push_back(study.points[i]);
  std::vector<double> slow(sample.size());
  const auto fast_sweep = [&] { results = cost::sweep(sample, 1); };
  const auto slow_sweep = [&] {
    for (std::size_t i = 0; i < sample.size(); ++i) slow[i] = step_by_step(sample[i]);
  };
  bench::report("estimates / steps of the same points added up, one thread",
                bench::paired(fast_sweep, slow_sweep, pairs));
  double worst = 0;
  for (std::size_t i = 0; i < sample.size(); ++i)
    worst = std::max(worst, std::abs(results[i].estimate.time.per_token / slow[i] - 1));
  std::printf("largest relative difference of a mean step: %.1e\n", worst);
  return 0;
}
