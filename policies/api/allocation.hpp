#pragma once
/// Defines an allocation policy: it splits the total budget of a model over its lanes.
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
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
  std::size_t budget = 0;  ///< tokens per lane: the total is budget * n_layers * n_kv_heads
  /// Where some layers have a sliding window that is shorter than the prompt, per layer: what a lane can use,
  /// min(P, W), and the budget that it brings into the total. Empty: P and `budget` in every layer.
  std::vector<std::size_t> held{}, given{};
  /// Tokens that the eviction policy keeps in every lane whatever their score (sinks + window).
  std::size_t floor = 0;
  bool shared = false;  ///< the lanes of a layer hold one set, so they must get equal budgets
  /// Per lane, layer-major: values() of its profile; empty if the allocation has no profile.
  std::vector<std::vector<double>> profiles{};
  /// Per lane: the eviction policy's own score of every prompt position; empty unless the spec says
  /// uses_scores. Protected positions have scores too, which may be meaningless.
  std::vector<std::vector<double>> scores{};
  /// Returns what the eviction policy protects of a prompt of so many tokens in a lane of `budget` tokens;
  /// empty: nothing.
  std::function<Protection(std::size_t budget, std::size_t prompt)> protection{};
  /// Per lane: Oracle::losses() of its unit, if the spec says uses_losses and the eviction has a loss curve.
  std::vector<std::vector<double>> losses{};
  const Tables* tables = nullptr;

  std::size_t n_lanes() const { return n_layers * n_kv_heads; }
  bool even() const { return held.empty(); }
  std::size_t held_in(std::size_t layer) const { return even() ? prompt : held[layer]; }
  std::size_t given_in(std::size_t layer) const { return even() ? budget : given[layer]; }
  /// How many budgets a layer has: one if its lanes are `shared`.
  std::size_t units_per_layer() const { return shared ? 1 : n_kv_heads; }
};

/// The budget of a lane that never evicts, not even generated tokens. In totals it counts as what the lane
/// can use of the prompt.
inline constexpr std::size_t kNeverEvict = std::numeric_limits<std::size_t>::max();

/// The tokens of a lane that an allocation can split.
struct Headroom {
  std::size_t floor = 0;  ///< tokens the lane gets, at most what it can use
  std::size_t mean = 0;   ///< tokens above the floor that it brings into the total
  std::size_t most = 0;   ///< tokens above the floor that it can use
};
/// Of a lane of a layer; of any, where the request is even. Throws Error(usage) when the budget does not
/// reach the floor.
Headroom headroom(const AllocationRequest& request, std::size_t layer = 0);

/// The headrooms of layers, or of units, layer-major.
struct Rooms {
  std::vector<Headroom> of{};

  std::size_t total() const;              ///< sum of what they bring
  std::vector<std::size_t> most() const;  ///< what each can use
};
Rooms rooms(const AllocationRequest& request, std::size_t per_layer = 1);

/// Throws Error(usage) about published arithmetic, which knows layers of one size alone, where some layers
/// have a window.
void require_even(const AllocationRequest& request, const std::string& variant);

class Allocation {
 public:
  virtual ~Allocation() = default;
  /// Returns a fresh profile of one lane, or null if this allocation measures nothing.
  virtual std::unique_ptr<Profile> profile(const CacheUnit& /*lane*/) const { return nullptr; }
  /// Returns tokens per lane, layer-major [n_layers * n_kv_heads], each in [min(floor, h), h] or kNeverEvict,
  /// h being what the lane can use. Their total is exactly the sum of what the lanes bring, unless the spec
  /// says `inexact`: then the total of the published formula stands and results report it. Throws
  /// Error(usage) when the budget is too small for the rule, at least when budget < floor.
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
