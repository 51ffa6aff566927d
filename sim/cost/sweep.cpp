#include "sim/cost/sweep.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::cost {
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
