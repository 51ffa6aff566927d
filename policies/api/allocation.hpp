#pragma once
/// What an allocation policy is: it splits the total budget of a model over its lanes.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// What an allocation measures on one lane's prompt before anything is split.
class Profile : public PromptObserver {
 public:
  /// After finish_prompt(). What the numbers mean is the allocation's own business.
  virtual std::vector<double> values() const = 0;
};

struct AllocationRequest {
  std::size_t n_layers = 0, n_kv_heads = 0;
  std::size_t prompt = 0;  ///< P: no lane can use more
  std::size_t budget = 0;  ///< mean tokens per lane: the total is budget * n_layers * n_kv_heads
  std::size_t floor =
      0;  ///< tokens the eviction policy keeps in every lane whatever its score (sinks + window)
  bool shared = false;  ///< the lanes of a layer hold one set: they must get equal budgets
  /// Per lane, layer-major: values() of its profile; empty if the allocation has none.
  std::vector<std::vector<double>> profiles{};
  /// Per lane: the eviction policy's own score of every prompt position; empty unless the spec says
  /// uses_scores.
  std::vector<std::vector<double>> scores{};
  const Tables* tables = nullptr;

  std::size_t n_lanes() const { return n_layers * n_kv_heads; }
};

class Allocation {
 public:
  virtual ~Allocation() = default;
  /// A fresh profile of one lane; null: this allocation measures nothing.
  virtual std::unique_ptr<Profile> profile(const Unit& /*lane*/) const { return nullptr; }
  /// Tokens per lane, layer-major [n_layers * n_kv_heads]; each in [min(floor, P), P] and in all exactly
  /// min(budget, P) * n_layers * n_kv_heads, unless the spec says `inexact`: then the published formula's own
  /// total stands and results report it. Throws Error(usage) when budget < floor.
  virtual std::vector<std::size_t> allocate(const AllocationRequest& request) const = 0;
};

/// Throws Error(usage) when the budget does not reach the floor.
void check_budget(const AllocationRequest& request);
/// Every KV head of layer i gets floor + above[i].
std::vector<std::size_t> per_lane(const std::vector<std::size_t>& above, std::size_t floor,
                                  std::size_t n_kv_heads);

}  // namespace kvsim::policy
