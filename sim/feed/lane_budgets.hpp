#pragma once
/// Computes how many tokens may be resident in each lane. All code that splits a budget does so here.
#include <cstddef>
#include <string>
#include <vector>

#include "policies/api/composition.hpp"

namespace kvsim::sim {

/// The lanes and the prompt that a budget is split over.
struct LaneShape {
  std::size_t n_layers = 0, n_kv_heads = 0;
  std::size_t prompt = 0;
  /// Where layers differ, because some have a sliding window: what a lane of each can hold of the prompt, and
  /// the budget that it is asked for. Empty: the prompt and one budget in all.
  std::vector<std::size_t> held{}, budgets{};

  std::size_t held_in(std::size_t layer) const { return held.empty() ? prompt : held[layer]; }
};

/// What an allocation may measure of the prompt, per lane and layer-major. A measurement is empty where the
/// allocation does not ask for it (policies/api/allocation.hpp).
struct LaneMeasurements {
  std::vector<std::vector<double>> profiles{}, scores{}, losses{};
  const policy::Tables* tables = nullptr;
};

/// Throws Error(usage) when the budget is below the policy's floor, the tokens that it keeps in every lane at
/// any scores. `named` is how the message calls the budget, such as "budget '10%'". A budget of the whole
/// prompt drops nothing and needs no check.
void check_floor(const policy::Composition& composition, std::size_t budget, const std::string& named);

/// Returns whether there is nothing to split: the eviction has a budget of its own, or the budget covers what
/// every lane can hold of the prompt and the allocation has no total of its own.
bool nothing_to_split(const policy::Composition& composition, const LaneShape& shape, std::size_t budget);

/// Returns the tokens of each lane, layer-major [n_layers * n_kv_heads]: kNeverEvict for a lane that never
/// evicts, which is every lane of an eviction with a budget of its own. Where the budget covers the prompt, a
/// lane that is allocated its whole prompt gets that budget, or what the policy always keeps where that is
/// more. `budget`: of every lane, unless the shape says those of layers.
/// Throws Error(usage) as the allocation does, and Error(bug) when the allocation breaks its contract.
std::vector<std::size_t> lane_budgets(const policy::Composition& composition, const LaneShape& shape,
                                      std::size_t budget, LaneMeasurements measured);

}  // namespace kvsim::sim
