#pragma once
/// A list of policies to choose from by name. The built-in one is policies/builtin.hpp.
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

class Registry {
 public:
  /// Names and aliases must be unique over everything added (Error bug).
  void add(PolicySpec spec);
  void add(PresetSpec preset);

  const std::vector<PolicySpec>& policies() const { return policies_; }
  const std::vector<PresetSpec>& presets() const { return presets_; }
  const PolicySpec* find_policy(std::string_view name_or_alias) const;
  const PresetSpec* find_preset(std::string_view name) const;
  std::vector<std::string> names() const;  ///< all names, aliases and presets, for suggestions

 private:
  std::vector<PolicySpec> policies_;
  std::vector<PresetSpec> presets_;
};

}  // namespace kvsim::policy
