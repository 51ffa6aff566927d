#pragma once
/// Defines an allocation policy: it splits the total budget of a model over its lanes.
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// Measures one lane's prompt for an allocation, before the budget is split.
class Profile : public PromptObserver {
 public:
  /// Valid after finish_prompt(). Each allocation defines what its numbers mean.
  virtual std::vector<double> values() const = 0;
};

struct AllocationRequest {
  std::size_t n_layers = 0, n_kv_heads = 0;
  std::size_t prompt = 0;  ///< P: no lane can use more
  std::size_t budget = 0;  ///< mean tokens per lane: the total is budget * n_layers * n_kv_heads
  /// Tokens that the eviction policy keeps in every lane whatever their score (sinks + window).
  std::size_t floor = 0;
  bool shared = false;  ///< the lanes of a layer hold one set, so they must get equal budgets
  /// Per lane, layer-major: values() of its profile; empty if the allocation has no profile.
  std::vector<std::vector<double>> profiles{};
  /// Per lane: the eviction policy's own score of every prompt position; empty unless the spec says
  /// uses_scores. Protected positions have scores too, which may be meaningless.
  std::vector<std::vector<double>> scores{};
  /// Returns what the eviction policy protects of the prompt in a lane of `budget` tokens; empty: nothing.
  std::function<Protection(std::size_t budget)> protection{};
  /// Per lane: Oracle::losses() of its unit, if the spec says uses_losses and the eviction has a loss curve.
  std::vector<std::vector<double>> losses{};
  const Tables* tables = nullptr;

  std::size_t n_lanes() const { return n_layers * n_kv_heads; }
  /// How many budgets a layer has: one if its lanes are `shared`.
  std::size_t units_per_layer() const { return shared ? 1 : n_kv_heads; }
};

/// The budget of a lane that never evicts, not even generated tokens. In totals it counts as the prompt.
inline constexpr std::size_t kNeverEvict = std::numeric_limits<std::size_t>::max();

/// The tokens that an allocation can split.
struct Headroom {
  std::size_t floor = 0;  ///< tokens every lane gets, at most the prompt
  std::size_t mean = 0;   ///< tokens per lane above the floor, on average
  std::size_t most = 0;   ///< tokens above the floor that a lane can use
};
/// Throws Error(usage) when the budget does not reach the floor.
Headroom headroom(const AllocationRequest& request);

class Allocation {
 public:
  virtual ~Allocation() = default;
  /// Returns a fresh profile of one lane, or null if this allocation measures nothing.
  virtual std::unique_ptr<Profile> profile(const CacheUnit& /*lane*/) const { return nullptr; }
  /// Returns tokens per lane, layer-major [n_layers * n_kv_heads], each in [min(floor, P), P] or kNeverEvict.
  /// Their total is exactly min(budget, P) * n_layers * n_kv_heads, unless the spec says `inexact`: then the
  /// total of the published formula stands and results report it. Throws Error(usage) when the budget is too
  /// small for the rule, at least when budget < floor.
  virtual std::vector<std::size_t> allocate(const AllocationRequest& request) const = 0;
};

/// Gives every KV head of layer i floor + above[i] tokens.
std::vector<std::size_t> per_layer(const AllocationRequest& request, std::span<const std::size_t> above);
/// `above`: one number per unit, layer-major. Gives the lanes of unit i floor + above[i] tokens.
std::vector<std::size_t> per_unit(const AllocationRequest& request, std::span<const std::size_t> above);
/// Returns the means of a value per lane over each layer's lanes, [n_layers].
std::vector<double> layer_means(const AllocationRequest& request, std::span<const double> per_lane);
/// Turns a value per lane into one per unit: the mean over the lanes that share a set.
std::vector<double> unit_means(const AllocationRequest& request, std::span<const double> per_lane);

}  // namespace kvsim::policy
