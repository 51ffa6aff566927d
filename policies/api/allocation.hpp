#pragma once
/// What an allocation policy is: it splits the total budget of a model over its lanes.
#include <cstddef>
#include <functional>
#include <limits>
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
  /// uses_scores. What it protects has one too, which may mean nothing.
  std::vector<std::vector<double>> scores{};
  /// What the eviction policy protects of the prompt in a lane of so many tokens; empty: nothing.
  std::function<Protection(std::size_t budget)> protection{};
  /// Per lane: Oracle::losses() of its unit, if the spec says uses_losses and the eviction has a loss curve.
  std::vector<std::vector<double>> losses{};
  const Tables* tables = nullptr;

  std::size_t n_lanes() const { return n_layers * n_kv_heads; }
  /// How many budgets there are to choose in a layer: one if its lanes are `shared`.
  std::size_t units_per_layer() const { return shared ? 1 : n_kv_heads; }
};

/// The budget of a lane that never drops anything, generated tokens included. In totals it counts as the
/// prompt.
inline constexpr std::size_t kNeverEvict = std::numeric_limits<std::size_t>::max();

/// What there is to split.
struct Headroom {
  std::size_t floor = 0;  ///< every lane's, at most the prompt
  std::size_t mean = 0;   ///< tokens per lane above the floor, on average
  std::size_t most = 0;   ///< tokens above the floor that a lane can use
};
/// Throws Error(usage) when the budget does not reach the floor.
Headroom headroom(const AllocationRequest& request);

class Allocation {
 public:
  virtual ~Allocation() = default;
  /// A fresh profile of one lane; null: this allocation measures nothing.
  virtual std::unique_ptr<Profile> profile(const CacheUnit& /*lane*/) const { return nullptr; }
  /// Tokens per lane, layer-major [n_layers * n_kv_heads]; each in [min(floor, P), P] or kNeverEvict, and in
  /// all exactly min(budget, P) * n_layers * n_kv_heads, unless the spec says `inexact`: then the published
  /// formula's own total stands and results report it. Throws Error(usage) when the budget is too small for
  /// the rule: budget < floor at least.
  virtual std::vector<std::size_t> allocate(const AllocationRequest& request) const = 0;
};

/// Every KV head of layer i gets floor + above[i].
std::vector<std::size_t> per_layer(const AllocationRequest& request, std::span<const std::size_t> above);
/// One number per unit, layer-major: floor + above[i] for its lanes.
std::vector<std::size_t> per_unit(const AllocationRequest& request, std::span<const std::size_t> above);
/// Means of a value per lane over each layer's lanes, [n_layers].
std::vector<double> layer_means(const AllocationRequest& request, std::span<const double> per_lane);
/// A value per lane as one per unit: means over the lanes that share a set.
std::vector<double> unit_means(const AllocationRequest& request, std::span<const double> per_lane);

}  // namespace kvsim::policy
