#pragma once
/// How representations and selections declare and read the tables that `kvsim calibrate` measured for them.
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Appends `file` (no default) and `own_traces` to the own parameters of a policy.
std::vector<ParamSpec> with_calibration_params(std::vector<ParamSpec> params);
/// The same for a policy that may measure the prompt that it is used on in place of other runs: file=prompt,
/// the default.
std::vector<ParamSpec> with_optional_calibration(std::vector<ParamSpec> params);
/// Whether it does.
inline bool measures_prompt(const Params& params) {
  return params.word("file") == "prompt";
}

/// "codec(a=1,b=2)" of these parameters; the tables of other values are others.
std::string calibration_maker(std::string_view codec, const Params& params,
                              const std::vector<const char*>& names);

class CalibratedTables {
 public:
  CalibratedTables(std::string maker, const Params& params, const CacheUnit& unit);

  /// Whether files can be read; not where only the shape of a unit is looked at.
  bool readable() const { return unit_.tables != nullptr; }
  /// Returns the `numbers` numbers of a lane of the unit. Throws Error(input) when the file has another
  /// number of them.
  std::vector<float> lane(std::string_view table, int lane, std::size_t numbers) const;

 private:
  CalibrationRequest request_;
  CacheUnit unit_;
};

}  // namespace kvsim::policy
