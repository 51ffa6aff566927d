#pragma once
/// Stores keys and values as coordinates in a subspace: of the vectors of one KV head, of several side by
/// side, or of all heads of a layer. Its axes are principal components of other runs, or come from a file.
#include <functional>
#include <string>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/scalar_code.hpp"

namespace kvsim::policy {

struct SubspaceRule {
  std::size_t block = 1;                  ///< KV heads side by side; 0: all of the layer
  double key_share = 1, value_share = 1;  ///< of the vector's numbers that are stored, rounded
  bool rotated = true;                    ///< keys as they are rotated; else before
  bool centred = false;    ///< the mean of the other runs is subtracted first and added when reading
  std::size_t window = 0;  ///< tokens are exact beside their coordinates until there are so many
  /// Of coordinates whose window is full: of keys in groups of one coordinate over the window, of values in
  /// groups of as many as there are for each KV head of the block.
  ScalarCode code{ScalarKind::integer, 16};
  bool from_file = false;  ///< the way to coordinates and the way back are matrices of their own

  /// KV heads of a block in a unit of `lanes`. Throws Error(usage), placed at `where`, if blocks do not
  /// divide it.
  std::size_t block_of(std::size_t lanes, const std::string& where) const;
};

/// `bits` of the coordinates. Throws Error(usage), placed at `where`, as scalar_code() does, and where they
/// are codes but no window is there for their groups.
ParamSpec coordinate_bits_param();
ScalarCode coordinate_code(const Params& params, const std::string& where);

/// The specification of a representation by such a rule, which reads its matrices from a file of any program:
/// adds file=, the ledger and the factory.
PolicySpec external_subspace_spec(PolicySpec spec, std::function<SubspaceRule(const Params&)> rule);
/// The same of one that reads what was calibrated: adds own_traces= and the calibrator, too. `measured`: its
/// parameters that the components depend on.
PolicySpec subspace_spec(PolicySpec spec, std::function<SubspaceRule(const Params&)> rule,
                         std::initializer_list<const char*> measured);

}  // namespace kvsim::policy
