#pragma once
/// What an allocation policy is: it splits the total budget of a model over its lanes.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace kvsim::policy {

/// Importance of the prompt's positions to its last queries, XKV's w (arXiv: XKV, section on w; SnapKV's
/// score): mean over the last `window` rows of each query head, averaged over heads, then average-pooled over
/// positions.
struct ImportanceSpec {
  std::size_t window = 8;
  std::size_t pool = 7;  ///< odd kernel, stride 1, zero padding counted in the divisor; 1: no pooling
  bool operator==(const ImportanceSpec&) const = default;
};

struct AllocationRequest {
  std::size_t n_layers = 0, n_kv_heads = 0;
  std::size_t prompt = 0;  ///< P: no lane can use more
  std::size_t budget = 0;  ///< mean tokens per lane: the total is budget * n_layers * n_kv_heads
  std::size_t floor =
      0;  ///< tokens the eviction policy keeps in every lane whatever its score (sinks + window)
  /// Per layer, w over positions [0, P - window); empty unless importance() asked for it.
  std::vector<std::span<const float>> importance{};
};

class Allocation {
 public:
  virtual ~Allocation() = default;
  /// Non-null: allocate() wants `importance` computed this way.
  virtual const ImportanceSpec* importance() const { return nullptr; }
  /// Tokens per lane, layer-major [n_layers * n_kv_heads]; each in [min(floor, P), P] and in all exactly
  /// min(budget, P) * n_layers * n_kv_heads, unless the policy's own rule stops earlier and its spec says so.
  /// Throws Error(usage) when budget < floor.
  virtual std::vector<std::size_t> allocate(const AllocationRequest& request) const = 0;
};

/// Throws Error(usage) when the budget does not reach the floor.
void check_budget(const AllocationRequest& request);
/// Every KV head of layer i gets floor + above[i].
std::vector<std::size_t> per_lane(const std::vector<std::size_t>& above, std::size_t floor,
                                  std::size_t n_kv_heads);

}  // namespace kvsim::policy
