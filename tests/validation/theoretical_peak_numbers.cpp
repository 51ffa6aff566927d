// The four bounds of the theoretical-peak-performance analysis.
#include <cmath>

#include "sim/cost/latency.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/offload.hpp"
#include "tests/validation/entries.hpp"

namespace kvsim::cost {
namespace theoretical_peak_numbers {

constexpr std::uint64_t kShort = 4000, kLong = 50000, kLonger = 100000;
constexpr double kWeights = 68e9, kLongCache = 11e9;  ///< as the paper rounds them
constexpr double kBandwidth = 2e12, kPcie = 20e9, kRate = 312e12;
constexpr double kScreen = 250;  ///< tokens

/// Returns the number of users whose caches fit, with nothing reserved for activations: the paper's formula
/// in GiB.
double users(const Model& model, double cards, std::uint64_t tokens) {
  return std::floor((cards * 80 - 68) * kGiB / cache_bytes(model, tokens));
}

/// Counts products and causal attention, as the paper does.
double prefill_seconds(const Model& model, std::uint64_t tokens) {
  const PassTime pass = pass_time(model, ideal(kRate, kBandwidth), serve(tokens, 1, 1), tokens, 0, false);
  return pass[OpClass::linear].seconds + pass[OpClass::attention].seconds;
}

void derived(Entries& entries, const Model& model) {
  entries.exact("KV cache of a token", "245760", "B", cache_bytes(model, 1));
  entries.exact("KV cache of 50,000 tokens", "12288000000", "B", cache_bytes(model, kLong));
  entries.exact("KV cache of 4,000 tokens", "0.916", "GiB", cache_bytes(model, kShort) / kGiB);
  entries.exact("KV cache of 50,000 tokens", "11.44", "GiB", cache_bytes(model, kLong) / kGiB);
  entries.exact("KV cache of 100,000 tokens", "22.89", "GiB", cache_bytes(model, kLonger) / kGiB);
  const char* naive = "memory beside 68 GiB of weights over the cache, rounded down";
  entries.exact("users at 4,000 tokens, two cards", "100", "users", users(model, 2, kShort), naive);
  entries.exact("users at 50,000 tokens, two cards", "8", "users", users(model, 2, kLong), naive);
  entries.exact("users at 100,000 tokens, two cards", "4", "users", users(model, 2, kLonger), naive);
  entries.exact("users at 4,000 tokens, four cards", "275", "users", users(model, 4, kShort), naive);
  entries.exact("users at 50,000 tokens, four cards", "22", "users", users(model, 4, kLong), naive);

  entries.subject(Subject::time);
  const Link memory{kBandwidth, 0}, pcie{kPcie, 0};
  entries.exact("250 tokens at 50K, 68 + 11 GB read for each", "9.875", "s",
                kScreen * transfer_time(memory, static_cast<std::uint64_t>(kWeights + kLongCache), 0));
  entries.exact("250 tokens, weights alone", "8.500", "s",
                kScreen * transfer_time(memory, static_cast<std::uint64_t>(kWeights), 0));
  entries.exact("switch between two users of 11 GB", "1.1", "s",
                2 * transfer_time(pcie, static_cast<std::uint64_t>(kLongCache), 1));
  const Machine machine = ideal(kRate, kBandwidth);
  const PassTime pass = pass_time(model, machine, serve(kLong, 1, 1), kLong, 0, false);
  const double n = static_cast<double>(kLong);
  entries.within(1e-4, "FLOP of causal attention per squared token", "860160", "FLOP",
                 pass[OpClass::attention].flops / (n * n), "a token attends to itself, too");
  entries.within(0.02, "prefill of 4,000 tokens, products and causal attention", "0.916", "s",
                 prefill_seconds(model, kShort),
                 "the derivation takes 34e9 parameters, ours counts the matrices");
  entries.within(0.02, "prefill of 50,000 tokens, the same", "17.79", "s", prefill_seconds(model, kLong),
                 "34e9 parameters against matrices");
  entries.within(0.02, "prefill of 50,000 tokens, products alone", "10.90", "s",
                 pass[OpClass::linear].seconds, "34e9 parameters against matrices");
}

void headline(Entries& entries, const Model& model) {
  entries.evidence(Evidence::recalled).subject(Subject::bytes);
  entries.exact("KV cache at 4K", "0.91", "GB", cache_bytes(model, kShort) / kGiB,
                "0.916: GB is GiB, cut off, and 4K is 4000");
  entries.exact("KV cache at 50K", "11", "GB", cache_bytes(model, kLong) / kGiB, "GB is GiB");
  entries.within(0.01, "KV cache at 100K", "22.8", "GB", cache_bytes(model, kLonger) / kGiB, "GB is GiB");
  entries.exact("users at 50K, one card", "1", "users", users(model, 1, kLong),
                "none, had GB been decimal: 12 / 12.288");
  entries.contradicted("users at 4K, one card", "20", "users", users(model, 1, kShort),
                       "12 GiB over 0.916 GiB");
  entries.subject(Subject::time);
  const Machine machine = ideal(kRate, kBandwidth);
  const auto screen = [&](std::uint64_t tokens) {
    return kScreen * pass_time(model, machine, serve(1, 1, 1), 1, tokens, true).seconds();
  };
  entries.within(0.05, "prefill at 4K", "0.89", "s", prefill_seconds(model, 4096));
  entries.within(
      0.3, "prefill at 50K", "14.1", "s", prefill_seconds(model, kLong),
      "between products alone (10.7) and exact causal attention: the paper's expression is not known");
  entries.within(0.03, "250 tokens at 4K", "8.5", "s", screen(kShort), "the paper leaves the cache out");
  entries.within(0.03, "250 tokens at 50K", "9.8", "s", screen(kLong));
  entries.within(0.15, "context switch at 50K", "1.1", "s",
                 2 * transfer_time({kPcie, 0}, static_cast<std::uint64_t>(cache_bytes(model, kLong)), 1),
                 "decimal bytes here");
}

std::vector<Check> checks(Inputs&) {
  const Model model = find_model("yi-34b-200k");
  Entries entries(Evidence::derived);
  derived(entries, model);
  headline(entries, model);
  return entries.take();
}

}  // namespace theoretical_peak_numbers

Source theoretical_peak_source() {
  return {"Theoretical peak performance",
          "Fu, Challenges in Deploying Long-Context Transformers: A Theoretical Peak Performance Analysis, "
          "arXiv 2405.08944; Yi-34B-200K on A100-80",
          {"312 TFLOP/s, 2 TB/s and 20 GB/s of PCIe, all reached: no efficiencies, no launches.",
           "Derived rows restate the paper's formulas on its inputs. Its printed numbers are recalled."},
          {},
          theoretical_peak_numbers::checks};
}

}  // namespace kvsim::cost
