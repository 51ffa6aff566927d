#include "sim/cost/estimate.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"

namespace kvsim::cost {
namespace {

/// Bytes of bigger devices could overflow where a batch is tried that exceeds them.
constexpr std::uint64_t kMaxCap = std::uint64_t{1} << 60;

std::uint64_t peak_bytes(const Memory& prefill, const Memory& at_end) {
  return std::max(prefill.total(), at_end.total());
}

}  // namespace

std::uint64_t Estimate::peak() const {
  return peak_bytes(prefill, at_end);
}

Estimate estimate(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                  const policy::Cost& cost, std::uint64_t budget) {
  Estimate out;
  out.budget = budget;
  out.prefill = prefill_peak(model, machine, serving, holding, cost);
  out.at_end = memory_at(model, machine, serving, holding, cost, serving.generate);
  out.fits = out.peak() <= machine.memory;
  out.time = latency(model, machine, serving, holding, cost);
  return out;
}

Estimate estimate(const Model& model, const Machine& machine, const Serving& serving,
                  const policy::Composition& composition, std::uint64_t budget) {
  check_serving(model, serving);
  const Holding holding = rule_holding(composition, model, stored_heads(model, serving.layout),
                                       serving.prompt, serving.generate, budget);
  return estimate(model, machine, serving, holding, cost_of(composition, model, serving.prompt, budget),
                  budget);
}

std::uint64_t largest_batch(const Model& model, const Machine& machine, const Serving& serving,
                            const Holding& holding, const policy::Cost& cost, std::uint64_t cap) {
  if (cap > kMaxCap) usage_error("more than 2^60 bytes", "memory cap");
  Serving tried = serving;
  const auto fits = [&](std::uint64_t batch) {
    tried.batch = batch;
    return peak_bytes(prefill_peak(model, machine, tried, holding, cost),
                      memory_at(model, machine, tried, holding, cost, serving.generate)) <= cap;
  };
  // Memory grows with the batch: the answer is in [low, high).
  std::uint64_t low = 0, high = 1;
  while (fits(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace kvsim::cost
