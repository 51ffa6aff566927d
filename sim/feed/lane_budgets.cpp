#include "sim/feed/lane_budgets.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::sim {
namespace {

/// Throws Error(bug) unless the budgets keep the contract of an allocation.
void check_budgets(const policy::Part& allocation, const policy::AllocationRequest& request,
                   const std::vector<std::size_t>& budgets) {
  const std::string who = "allocation '" + allocation.spec->name + "' gave ";
  if (budgets.size() != request.n_lanes())
    bug(who + "budgets to " + std::to_string(budgets.size()) + " lanes");
  std::size_t total = 0, asked = 0;
  for (std::size_t lane = 0; lane < budgets.size(); ++lane) {
    const std::size_t layer = lane / request.n_kv_heads, held = request.held_in(layer), given = budgets[lane];
    total += given == policy::kNeverEvict ? held : given;
    asked += request.given_in(layer);
    const bool uneven = request.shared && given != budgets[lane - lane % request.n_kv_heads];
    if (given < std::min(request.floor, held) || given == 0 ||
        (given > held && given != policy::kNeverEvict) || uneven)
      bug(who + "lane " + std::to_string(lane) + " " + std::to_string(given) + " tokens");
  }
  if (total != asked && !allocation.inexact())
    bug(who + std::to_string(total) + " tokens instead of " + std::to_string(asked));
}

}  // namespace

void check_floor(const policy::Composition& composition, std::size_t budget, const std::string& named) {
  if (composition.eviction.spec->own_budget() || budget >= composition.floor()) return;
  usage_error("keeps " + std::to_string(composition.floor()) +
                  " tokens in every lane whatever their score; " + named + " is " + std::to_string(budget),
              composition.name,
              "Give a budget of at least " + std::to_string(composition.floor()) + ", or other parameters.");
}

bool nothing_to_split(const policy::Composition& composition, const LaneShape& shape, std::size_t budget) {
  if (composition.eviction.spec->own_budget()) return true;
  if (composition.allocation.own_total()) return false;
  for (std::size_t layer = 0; layer < shape.budgets.size(); ++layer)
    if (shape.budgets[layer] < shape.held[layer]) return false;
  return !shape.budgets.empty() || budget >= shape.prompt;
}

std::vector<std::size_t> lane_budgets(const policy::Composition& composition, const LaneShape& shape,
                                      std::size_t budget, LaneMeasurements measured) {
  const std::size_t lanes = shape.n_layers * shape.n_kv_heads, floor = composition.floor();
  if (composition.eviction.spec->own_budget()) return std::vector<std::size_t>(lanes, policy::kNeverEvict);
  const auto asked_in = [&](std::size_t lane) {
    return shape.budgets.empty() ? budget : shape.budgets[lane / shape.n_kv_heads];
  };
  std::vector<std::size_t> budgets(lanes);
  if (nothing_to_split(composition, shape, budget)) {
    for (std::size_t lane = 0; lane < lanes; ++lane) budgets[lane] = std::max(asked_in(lane), floor);
    return budgets;
  }
  policy::AllocationRequest request;
  request.n_layers = shape.n_layers;
  request.n_kv_heads = shape.n_kv_heads;
  request.prompt = shape.prompt;
  request.budget = std::min(budget, shape.prompt);
  request.held = shape.held;
  for (std::size_t layer = 0; layer < shape.budgets.size(); ++layer)
    request.given.push_back(std::min(shape.budgets[layer], shape.held[layer]));
  request.floor = floor;
  request.shared = composition.layer_unit();
  request.profiles = std::move(measured.profiles);
  request.scores = std::move(measured.scores);
  request.losses = std::move(measured.losses);
  request.protection = composition.eviction.protection();
  request.tables = measured.tables;
  const policy::Part& allocation = composition.allocation;
  budgets = allocation.make_allocation()->allocate(request);
  check_budgets(allocation, request, budgets);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::size_t held = request.held_in(lane / shape.n_kv_heads);
    if (asked_in(lane) >= held && budgets[lane] == held) budgets[lane] = std::max(asked_in(lane), floor);
  }
  return budgets;
}

}  // namespace kvsim::sim
