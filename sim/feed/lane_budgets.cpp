#include "sim/feed/lane_budgets.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "sim/base/error.hpp"

namespace kvsim::sim {
namespace {

/// Throws Error(bug) unless the budgets keep the contract of an allocation.
void check_budgets(const policy::Part& allocation, const policy::AllocationRequest& request,
                   const std::vector<std::size_t>& budgets) {
  const std::string who = "allocation '" + allocation.spec->name + "' gave ";
  const std::size_t total =
      std::transform_reduce(budgets.begin(), budgets.end(), std::size_t{0}, std::plus<>(),
                            [&](std::size_t n) { return n == policy::kNeverEvict ? request.prompt : n; });
  if (budgets.size() != request.n_lanes())
    bug(who + "budgets to " + std::to_string(budgets.size()) + " lanes");
  if (total != request.budget * request.n_lanes() && !allocation.inexact())
    bug(who + std::to_string(total) + " tokens instead of " +
        std::to_string(request.budget * request.n_lanes()));
  for (std::size_t lane = 0; lane < budgets.size(); ++lane) {
    const bool uneven = request.shared && budgets[lane] != budgets[lane - lane % request.n_kv_heads];
    if (budgets[lane] < std::min(request.floor, request.prompt) || budgets[lane] == 0 ||
        (budgets[lane] > request.prompt && budgets[lane] != policy::kNeverEvict) || uneven)
      bug(who + "lane " + std::to_string(lane) + " " + std::to_string(budgets[lane]) + " tokens");
  }
}

}  // namespace

void check_floor(const policy::Composition& composition, std::size_t budget, const std::string& named) {
  if (composition.eviction.spec->own_budget() || budget >= composition.floor()) return;
  usage_error("keeps " + std::to_string(composition.floor()) +
                  " tokens in every lane whatever their score; " + named + " is " + std::to_string(budget),
              composition.name,
              "Give a budget of at least " + std::to_string(composition.floor()) + ", or other parameters.");
}

bool nothing_to_split(const policy::Composition& composition, std::size_t prompt, std::size_t budget) {
  return composition.eviction.spec->own_budget() || (budget >= prompt && !composition.allocation.own_total());
}

std::vector<std::size_t> lane_budgets(const policy::Composition& composition, const LaneShape& shape,
                                      std::size_t budget, LaneMeasurements measured) {
  const std::size_t lanes = shape.n_layers * shape.n_kv_heads;
  if (nothing_to_split(composition, shape.prompt, budget))
    return std::vector<std::size_t>(lanes, composition.eviction.spec->own_budget()
                                               ? policy::kNeverEvict
                                               : std::max(budget, composition.floor()));
  policy::AllocationRequest request;
  request.n_layers = shape.n_layers;
  request.n_kv_heads = shape.n_kv_heads;
  request.prompt = shape.prompt;
  request.budget = std::min(budget, shape.prompt);
  request.floor = composition.floor();
  request.shared = composition.layer_unit();
  request.profiles = std::move(measured.profiles);
  request.scores = std::move(measured.scores);
  request.losses = std::move(measured.losses);
  request.protection = composition.eviction.protection(shape.prompt);
  request.tables = measured.tables;
  const policy::Part& allocation = composition.allocation;
  std::vector<std::size_t> budgets = allocation.make_allocation()->allocate(request);
  check_budgets(allocation, request, budgets);
  if (budget >= shape.prompt)
    std::replace(budgets.begin(), budgets.end(), shape.prompt, std::max(budget, request.floor));
  return budgets;
}

}  // namespace kvsim::sim
