#include "sim/cost/estimate.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"
#include "sim/cost/checked.hpp"
#include "sim/cost/offload.hpp"

namespace kvsim::cost {
namespace {

/// Larger memory caps are refused, because the bytes of a tried batch that exceeds them could overflow.
constexpr std::uint64_t kMaxCap = std::uint64_t{1} << 60;

std::uint64_t peak_bytes(const Memory& prefill, const Memory& at_end) {
  return std::max(prefill.total(), at_end.total());
}

std::uint64_t peak_bytes(const Memory& prefill, const Memory& at_end, Tier tier) {
  return std::max(prefill.away[tier], at_end.away[tier]);
}

/// Returns whether each tier holds its bytes of all devices together.
bool fits_tiers(const Memory& prefill, const Memory& at_end, const Machine& machine, const Serving& serving) {
  return std::all_of(kTiers.begin(), kTiers.end(), [&](Tier tier) {
    const std::uint64_t capacity = machine.capacity(tier);
    return capacity == 0 || peak_bytes(prefill, at_end, tier) <= capacity / serving.tensor_parallel;
  });
}

/// Returns the bytes that one copy moves, of a sequence's cache of `bytes` on a device.
std::uint64_t copied_at_once(const Model& model, const Serving& serving, std::uint64_t bytes) {
  const Layout& layout = serving.layout;
  if (layout.page == 0) return std::max<std::uint64_t>(1, ceil_divided(bytes, model.cached_layers()));
  const std::uint64_t lanes =
      layout.head_pages ? 1 : local_kv_heads(stored_heads(model, layout), serving.tensor_parallel);
  return std::max<std::uint64_t>(
      1, stored_bytes(layout.storage, model, lanes, LaneTokens{.kept = layout.page}) / 2);
}

}  // namespace

std::uint64_t Estimate::peak() const {
  return peak_bytes(prefill, at_end);
}

std::uint64_t Estimate::peak(Tier tier) const {
  return peak_bytes(prefill, at_end, tier);
}

std::optional<double> swap_seconds(const Model& model, const Machine& machine, const Serving& serving,
                                   const Holding& holding, const policy::Cost& cost) {
  if (!(machine.host.bandwidth > 0)) return std::nullopt;
  Serving one = serving;
  one.batch = 1;
  one.offload = {};
  const Memory held = memory_at(model, machine, one, holding, cost, serving.generate);
  const std::uint64_t all = checked_sum("a sequence's cache", held.keys_values, held.padding);
  const std::uint64_t bytes =
      checked_sum("a sequence's cache", all - share_of(all, serving.offload.cache_away()), held.states);
  return swap_time(machine.host, bytes, copied_at_once(model, serving, bytes));
}

double recompute_seconds(const Model& model, const Machine& machine, const Serving& serving,
                         const Holding& holding, const policy::Cost& cost) {
  Serving again = serving;
  again.batch = 1;
  again.prompt = serving.prompt + serving.generate;
  again.generate = 0;
  return prefill_time(model, machine, again, holding, cost).seconds();
}

Estimate estimate(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                  const policy::Cost& cost, std::uint64_t budget) {
  Estimate out;
  out.budget = budget;
  out.prefill = prefill_peak(model, machine, serving, holding, cost);
  out.at_end = memory_at(model, machine, serving, holding, cost, serving.generate);
  out.tiers_fit = fits_tiers(out.prefill, out.at_end, machine, serving);
  out.fits = out.peak() <= machine.memory && out.tiers_fit;
  out.time = latency(model, machine, serving, holding, cost);
  out.swap = swap_seconds(model, machine, serving, holding, cost);
  out.recompute = recompute_seconds(model, machine, serving, holding, cost);
  return out;
}

Estimate estimate(const Model& model, const Machine& machine, const Serving& serving,
                  const policy::Composition& composition, std::uint64_t budget) {
  check_serving(model, serving);
  const Holding holding = rule_holding(composition, model, stored_heads(model, serving.layout),
                                       serving.prompt, serving.generate, budget);
  return estimate(model, machine, served_with(serving, composition), holding,
                  cost_of(composition, model, serving.prompt, budget), budget);
}

std::uint64_t largest_batch(const Model& model, const Machine& machine, const Serving& serving,
                            const Holding& holding, const policy::Cost& cost, std::uint64_t cap) {
  if (cap > kMaxCap) usage_error("more than 2^60 bytes", "memory cap");
  Serving tried = serving;
  const auto fits = [&](std::uint64_t batch) {
    tried.batch = batch;
    const Memory prefill = prefill_peak(model, machine, tried, holding, cost);
    const Memory at_end = memory_at(model, machine, tried, holding, cost, serving.generate);
    return peak_bytes(prefill, at_end) <= cap && fits_tiers(prefill, at_end, machine, tried);
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

namespace {

/// Points per task: enough to make scheduling cheap, few enough to divide a small sweep.
constexpr std::size_t kTaskPoints = 64;

SweepResult result_of(const SweepPoint& point) {
  SweepResult result;
  try {
    check_serving(*point.model, point.serving);
    const Holding holding =
        rule_holding(*point.composition, *point.model, stored_heads(*point.model, point.serving.layout),
                     point.serving.prompt, point.serving.generate, point.budget, point.share);
    const policy::Cost cost = cost_of(*point.composition, *point.model, point.serving.prompt, point.budget);
    const Serving serving = served_with(point.serving, *point.composition);
    result.estimate = estimate(*point.model, *point.machine, serving, holding, cost, point.budget);
    if (point.cap > 0)
      result.largest_batch = largest_batch(*point.model, *point.machine, serving, holding, cost, point.cap);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    result.problem = error.what();
  }
  return result;
}

}  // namespace

std::vector<SweepResult> sweep(std::span<const SweepPoint> points, unsigned threads) {
  std::vector<SweepResult> results(points.size());
  const std::size_t tasks = tasks_of(points.size(), kTaskPoints);
  Workers(threads).run(tasks, [&](std::size_t task) {
    const std::size_t end = std::min(points.size(), (task + 1) * kTaskPoints);
    for (std::size_t i = task * kTaskPoints; i < end; ++i) results[i] = result_of(points[i]);
  });
  return results;
}

}  // namespace kvsim::cost
