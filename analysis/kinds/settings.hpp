#pragma once
/// What an analysis of traces is told besides the traces: parameters that `kvsim analyze KIND --name VALUE`
/// and study files set.
#include <string_view>
#include <vector>

#include "sim/base/params.hpp"

namespace kvsim::analysis {

/// The values of a kind's parameters: ParamValues reads them.
class Settings : public ParamValues {
 public:
  /// Every parameter at its default.
  explicit Settings(std::vector<ParamSpec> declared);
  /// Throws Error(usage), placed at `where`, for a name that is not declared and a value that is not legal.
  void set(std::string_view name, std::string_view value, std::string_view where);

 private:
  std::vector<ParamSpec> declared_;
};

}  // namespace kvsim::analysis
