#pragma once
/// Layers that are never compressed: the first few and the last few. They hold the whole prompt and whatever
/// follows; the others share what the budget leaves.
#include <vector>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

class ExemptLayers {
 public:
  /// Of the parameters exempt_first_param and exempt_last_param declare.
  ExemptLayers(const Params& params, std::size_t n_layers);

  bool contains(std::size_t layer) const { return layer < first_ || layer >= n_layers_ - last_; }
  /// How many are not exempt.
  std::size_t n_others() const { return n_layers_ - first_ - last_; }
  /// Tokens above the floor for the others, per KV head, summed over layers. Throws Error(usage) when the
  /// budget does not pay for the exempt layers and the others' floor.
  std::size_t left_for_others(const AllocationRequest& request) const;
  /// kNeverEvict for exempt layers, floor + above[i] for the i-th of the others.
  std::vector<std::size_t> lanes(const AllocationRequest& request,
                                 const std::vector<std::size_t>& above) const;

 private:
  std::size_t n_layers_, first_, last_;
};

ParamSpec exempt_first_param(std::size_t fallback);
ParamSpec exempt_last_param(std::size_t fallback);

}  // namespace kvsim::policy
