#pragma once
/// Stores keys and values as coordinates in the subspace that those of other runs lie in: principal
/// components of the vectors of one KV head, of several side by side, or of all heads of a layer.
#include <functional>
#include <string>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

struct SubspaceRule {
  std::size_t block = 1;                  ///< KV heads side by side; 0: all of the layer
  double key_share = 1, value_share = 1;  ///< of the vector's numbers that are stored, rounded
  bool rotated = true;                    ///< keys as they are rotated; else before
  bool centred = false;    ///< the mean of the other runs is subtracted first and added when reading
  std::size_t window = 0;  ///< tokens are exact beside their coordinates until there are so many

  /// KV heads of a block in a unit of `lanes`. Throws Error(usage), placed at `where`, if blocks do not
  /// divide it.
  std::size_t block_of(std::size_t lanes, const std::string& where) const;
};

/// The specification of a representation by such a rule: adds file= and own_traces=, the ledger, the
/// calibrator and the factory. `measured`: its parameters that the components depend on.
PolicySpec subspace_spec(PolicySpec spec, std::function<SubspaceRule(const Params&)> rule,
                         std::initializer_list<const char*> measured);

}  // namespace kvsim::policy
