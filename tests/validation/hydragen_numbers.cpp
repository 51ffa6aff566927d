// Hydragen: bytes of a shared prefix, read once or by every sequence.
#include <utility>

#include "sim/cost/latency.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace hydragen_numbers {

struct Point {
  std::uint64_t batch, prefix, suffix;
  const char* naive;     ///< MB
  const char* hydragen;  ///< MB
  const char* ratio;
};
constexpr Point kPoints[] = {
    {512, 1024, 0, "268.4", "0.524", "512"},       {512, 1024, 64, "285.2", "17.30", "16.48"},
    {512, 1024, 128, "302.0", "34.08", "8.86"},    {512, 1024, 512, "402.7", "134.7", "2.99"},
    {1024, 2048, 0, "1073.7", "1.049", "1024"},    {1024, 2048, 64, "1107.3", "34.60", "32.0"},
    {1024, 2048, 128, "1140.9", "68.16", "16.74"}, {1024, 2048, 512, "1342.2", "269.5", "4.98"},
    {2048, 4096, 64, "4362.1", "69.21", "63.0"},   {2048, 4096, 128, "4429.2", "136.3", "32.5"},
    {2048, 4096, 512, "4831.8", "539.0", "8.96"},  {4096, 8192, 64, "17314", "138.4", "125.1"},
    {4096, 8192, 128, "17448", "272.6", "64.0"},   {4096, 8192, 512, "18254", "1077.9", "16.93"}};

void attention_benchmark(Entries& entries) {
  const Model model = cache_shape("8 query heads on one KV head", 1, 8, 1, 128);
  for (const Point& point : kPoints) {
    const double naive = cache_bytes(model, point.prefix + point.suffix, point.batch);
    const double suffixes = point.suffix == 0 ? 0 : cache_bytes(model, point.suffix, point.batch);
    const double hydragen = cache_bytes(model, point.prefix) + suffixes;
    const std::string name = std::to_string(point.batch) + " sequences, prefix " +
                             std::to_string(point.prefix) + ", suffix " + std::to_string(point.suffix);
    entries.exact("read by every sequence, " + name, point.naive, "MB", naive / kMB);
    entries.exact("prefix read once, " + name, point.hydragen, "MB", hydragen / kMB);
    entries.exact("ratio, " + name, point.ratio, "x", naive / hydragen);
  }
}

/// CodeLlama-13B on eight A100-40 as one ideal machine; suffixes are 64 tokens long on average.
void whole_model(Entries& entries) {
  const Model model = find_model("llama-2-13b");
  const Machine machine = ideal(8 * 312e12, 8 * 1555e9);
  const auto step = [&](std::uint64_t prefix) {
    const PassTime pass = pass_time(model, machine, serve(1, 1, 1024), 1, prefix + 63, false);
    return pass[OpClass::linear].seconds + pass[OpClass::attention].seconds;
  };
  constexpr std::pair<std::uint64_t, const char*> kNaive[] = {
      {1024, "84.0"}, {2048, "153.1"}, {4096, "291.2"}, {8192, "567.4"}, {16256, "1111.2"}};
  entries.subject(Subject::time);
  for (const auto& [prefix, published] : kNaive)
    entries.within(0.02, "step, batch 1024, prefix " + std::to_string(prefix) + " read by every sequence",
                   published, "ms", 1e3 * step(prefix),
                   "derived with 13e9 parameters; ours counts the matrices");
  entries.evidence(Evidence::verified);
  entries.within(aim::kBytes, "throughput lost by the naive baseline from 1K to 16K (printed: above 90)",
                 "90", "%", 100 * (1 - step(1024) / step(16256)));
  entries.not_derivable("throughput lost by Hydragen from 1K to 16K (printed: below)", "15", "%",
                        "13 % by bytes, 25 % if the prefix's products are bound by compute");
  entries.not_derivable("throughput over the naive baseline, up to", "32", "x",
                        "a measurement of kernels; bytes alone allow it");
  entries.evidence(Evidence::derived).subject(Subject::bytes);
  entries.exact("cache, 1024 sequences, 16K of prefix each", "13.7", "TB",
                cache_bytes(model, 16384, 1024) / kTB);
  entries.exact("cache, the prefix shared, suffixes of 128", "121", "GB",
                (cache_bytes(model, 16384) + cache_bytes(model, 128, 1024)) / kGB);
}

std::vector<Check> checks(Inputs&) {
  Entries entries(Evidence::derived);
  attention_benchmark(entries);
  whole_model(entries);
  return entries.take();
}

}  // namespace hydragen_numbers

Source hydragen_source() {
  return {"Hydragen",
          "Juravsky, Brown, Ehrlich, Fu, Re, Mirhoseini, Hydragen: High-Throughput LLM Inference with Shared "
          "Prefixes, arXiv 2402.05099; settings of github.com/ScalingIntelligence/hydragen",
          {"Bytes of keys and values only, by the paper's formula at the settings of its sweep; partial "
           "outputs are left out."},
          {},
          hydragen_numbers::checks};
}

}  // namespace kvsim::cost
