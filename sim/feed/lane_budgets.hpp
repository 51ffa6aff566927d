#pragma once
/// How many tokens each lane may hold: the one place where a composition's allocation is asked.
#include <cstddef>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"

namespace kvsim::sim {

/// The lanes and the prompt that a budget is split over.
struct LaneShape {
  std::size_t n_layers = 0, n_kv_heads = 0;
  std::size_t prompt = 0;
};

/// What allocations may know of the prompt, per lane and layer-major; empty where the allocation asks for
/// none of it (policies/api/allocation.hpp).
struct LaneMeasurements {
  std::vector<std::vector<double>> profiles{}, scores{}, losses{};
  const policy::Tables* tables = nullptr;
};

/// Throws Error(usage) when the budget is below what the policy keeps in every lane whatever the scores.
/// `named`: how the message calls the budget, such as "budget '10%'".
void check_floor(const policy::Composition& composition, std::size_t budget, const std::string& named);

/// Whether every lane gets the budget as it is: the eviction has a budget of its own, or every lane can hold
/// its prompt and the allocation has no total of its own.
bool nothing_to_split(const policy::Composition& composition, std::size_t prompt, std::size_t budget);

/// Tokens per lane, layer-major [n_layers * n_kv_heads]. kNeverEvict for lanes that never evict, which are
/// all lanes of evictions with a budget of their own. Where the budget exceeds the prompt, so do the lanes
/// that hold their prompt. Throws Error(usage) as the allocation does, Error(bug) when the allocation breaks
/// its promises.
std::vector<std::size_t> lane_budgets(const policy::Composition& composition, const LaneShape& shape,
                                      std::size_t budget, LaneMeasurements measured);

}  // namespace kvsim::sim
