// FlexGen and H2O on a T4 with the weights and cache in host memory.
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/offload.hpp"
#include "tests/validation/entries.hpp"
#include "tests/validation/flexgen_plan.hpp"

namespace kvsim::cost {
namespace flexgen_numbers {

/// Sequences on the device at once: enough that small batches do not slow the host's attention.
constexpr std::uint64_t kDeviceBatch = 64;

struct Run {
  const char* name;
  std::uint64_t generated, batch;
  double ratio;  ///< share of heavy hitters; 0: full cache
  double weights_device;
  const char* throughput;  ///< tokens/s
  const char* prefill;     ///< s; none: not printed
  const char* decode;
  bool misses_prefill = false;
};
constexpr Run kRuns[] = {{"FlexGen, 32 generated, batch 144", 32, 144, 0, 0.2, "7.32", nullptr, nullptr},
                         {"H2O, 32 generated, batch 728", 32, 728, 0.1, 0, "12.66", "1053", "788"},
                         {"H2O, 512 generated, batch 416", 512, 416, 0.2, 0, "18.83", "610", "10705"},
                         {"H2O, 1024 generated, batch 264", 1024, 264, 0.3, 0, "13.88", "395", "19085"},
                         {"H2O, 32 generated, batch 768", 32, 768, 0.1, 0.2, "14.34", "976", "738", true},
                         {"H2O, 512 generated, batch 400", 512, 400, 0.2, 0.2, "18.18", "512", "10753"},
                         {"H2O, 1024 generated, batch 280", 1024, 280, 0.3, 0.2, "14.80", "363", "19014"}};
constexpr std::uint64_t kPrompt = 512;

/// FlexGen's authors fitted the rates of their cost model to runs on this instance.
constexpr const char* kFitted = "FlexGen's runs on a T4";
constexpr const char* kFitted175 = "FlexGen's run of OPT-175B";

OffloadRates rates_of(Inputs& inputs) {
  OffloadRates rates = flexgen_t4_rates(kDeviceBatch);
  for (double* rate : {&rates.host_to_device, &rates.device_to_host, &rates.cache_to_host, &rates.disk_read,
                       &rates.disk_write, &rates.prompt_to_disk, &rates.prefill_rate, &rates.decode_rate,
                       &rates.prefill_attention_rate, &rates.decode_attention_rate, &rates.host_rate})
    *rate = inputs.fitted(kFitted, *rate);
  return rates;
}

OffloadPlan plan_of(const Run& run) {
  OffloadPlan plan;
  plan.prompt = kPrompt;
  plan.generate = run.generated;
  plan.batch = run.batch;
  plan.cached_tokens = run.ratio > 0 ? 2 * static_cast<std::uint64_t>(std::floor(run.ratio * kPrompt))
                                     : kPrompt + run.generated / 2;
  plan.weights_device = run.weights_device;
  plan.weights_host = 1 - run.weights_device;
  plan.cache_device = 0;
  plan.cache_host = 1;
  return plan;
}

void opt_30b(Entries& entries, const OffloadRates& rates) {
  const Model model = find_model("opt-30b");
  for (const Run& run : kRuns) {
    const OffloadTime ours = offload_time(model, rates, plan_of(run));
    const std::string name = std::string("OPT-30B, ") + run.name + ", " +
                             std::to_string(static_cast<int>(100 * run.weights_device)) +
                             " % of weights on the GPU";
    entries.of(run.ratio > 0 ? "" : kFitted);
    entries.within(aim::kOffload, "throughput, " + name, run.throughput, "tokens/s", ours.tokens_per_second);
    if (!run.prefill) continue;
    entries.within({aim::kOffload, run.misses_prefill}, "prefill, " + name, run.prefill, "s", ours.prefill);
    entries.within(aim::kOffload, "decode, " + name, run.decode, "s", ours.decode);
  }
}

void opt_175b(Entries& entries, Inputs& inputs) {
  OffloadPlan plan;
  plan.prompt = kPrompt;
  plan.generate = 32;
  plan.batch = 256;
  plan.cached_tokens = kPrompt + 16;
  plan.weights_device = 0;
  plan.weights_host = 0.5;
  plan.cache_device = plan.cache_host = 0;
  const auto throughput = [&](double disk_read) {
    OffloadRates rates = rates_of(inputs);
    rates.disk_read = disk_read;
    return offload_time(find_model("opt-175b"), rates, plan).tokens_per_second;
  };
  entries.of(kFitted175);
  entries.contradicted(
      "throughput, OPT-175B, batch 256, half of the weights and the cache on disk, by the fitted disk",
      "0.69", "tokens/s", throughput(0.473 * kGiB), "the fitted 0.473 GiB/s is of another disk");
  entries.within(0.05, "throughput, OPT-175B, the same, by a disk that reads 2.6 GiB/s", "0.69", "tokens/s",
                 throughput(inputs.fitted(kFitted175, 2.6 * kGiB)), "the rate is fitted to this number");
}

std::vector<Check> checks(Inputs& inputs) {
  Entries entries(Evidence::verified);
  entries.subject(Subject::time);
  opt_30b(entries, rates_of(inputs));
  opt_175b(entries, inputs);

  const Model small = find_model("opt-6.7b");
  const Machine t4 = inputs.machine("t4");
  entries.of(kFitted).within(
      0.15, "throughput, OPT-6.7B, FlexGen, 512 + 32, batch 2, all on the GPU", "25.26", "tokens/s",
      latency(small, t4, serve(kPrompt, 32, 2), evenly(small, small.kv_heads, kPrompt), {})
          .tokens_per_second);
  for (const auto& [what, published] :
       {std::pair{"OPT-6.7B, 4 bits, batch 72", "29.12"}, std::pair{"OPT-30B, 4 bits, batch 512", "8.38"},
        std::pair{"OPT-175B, 4 bits, batch 144", "1.12"}})
    entries.not_derivable(std::string("throughput, FlexGen, 512 + 32, ") + what, published, "tokens/s",
                          "rates of its compression kernels are not given");
  return entries.take();
}

}  // namespace flexgen_numbers

Source flexgen_source() {
  return {"FlexGen and H2O with offload",
          "Sheng, Zheng, Yuan, Li, Ryabinin, Fu, Xie, Chen, Barrett, Gonzalez, Liang, Re, Stoica, Zhang, "
          "FlexGen, ICML 2023; throughput logs of github.com/FMInference/FlexGen and "
          "github.com/FMInference/H2O, T4 with 208 GB of host memory, prompts of 512",
          {"Rates are those FlexGen's authors fitted to their instance: which of their own runs they saw is "
           "not known, so all of these count as fitted, and H2O's as held out.",
           "H2O caches twice floor(ratio * 512) tokens; ratios .1, .2, .3 of the runs with 20 % of the "
           "weights on the GPU are assumed as in the others, whose suite prints them."},
          aim::kOffload,
          flexgen_numbers::checks};
}

}  // namespace kvsim::cost
