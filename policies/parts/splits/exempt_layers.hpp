#pragma once
/// Layers that are never compressed: the first few and the last few. They hold the whole prompt and
/// everything generated; the others share the remaining budget.
#include <vector>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

class ExemptLayers {
 public:
  /// Reads the parameters that exempt_first_param and exempt_last_param declare.
  ExemptLayers(const Params& params, std::size_t n_layers);

  bool contains(std::size_t layer) const { return layer < first_ || layer >= n_layers_ - last_; }
  /// How many layers are not exempt.
  std::size_t n_others() const { return n_layers_ - first_ - last_; }
  /// Returns tokens above the floor for the other layers, per KV head, summed over layers. Throws
  /// Error(usage) when the budget does not cover the exempt layers and the others' floor.
  std::size_t left_for_others(const AllocationRequest& request) const;
  /// Returns what each of the others can use above the floor.
  std::vector<std::size_t> most_of_others(const AllocationRequest& request) const;
  /// Returns kNeverEvict for exempt layers and floor + above[i] for the i-th of the others.
  std::vector<std::size_t> lanes(const AllocationRequest& request,
                                 const std::vector<std::size_t>& above) const;

 private:
  std::size_t n_layers_, first_, last_;
};

ParamSpec exempt_first_param(std::size_t fallback);
ParamSpec exempt_last_param(std::size_t fallback);

}  // namespace kvsim::policy
