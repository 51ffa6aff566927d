#pragma once
/// A list of policies to choose from by name. policies/builtin.hpp has the built-in one.
///
/// Evictions and presets share one set of names; allocations, representations and selections share another;
/// replacements, which stand alone, have a third. In a
/// composition the first name is an eviction or a preset, and those after '+' are found by name among the
/// others, so the system XKV and its allocation can both be called xkv.
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// A published system that cannot run here, so that its name is answered with the reason.
struct AbsentSpec {
  std::string name{};
  std::string needs{};    ///< what it would need: "... is trained, and ..."
  std::string instead{};  ///< what there is instead, a sentence
};

class Registry {
 public:
  /// Both check what is added and throw Error(bug) unless the name is free, the parameters are distinct,
  /// their defaults legal, and the factory is there. Pointers into the registry hold until the next add().
  void add(PolicySpec spec);
  void add(PresetSpec preset);
  void add(AbsentSpec absent);

  const std::vector<PolicySpec>& policies() const { return policies_; }
  const std::vector<PresetSpec>& presets() const { return presets_; }
  const PolicySpec* find_policy(Kind kind, std::string_view name_or_alias) const;
  /// What may stand after '+': an allocation, a representation or a selection.
  const PolicySpec* find_part(std::string_view name_or_alias) const;
  const PresetSpec* find_preset(std::string_view name) const;
  /// Throws Error(usage), placed at `where`, with the reason if the name is that of an AbsentSpec.
  void refuse_absent(std::string_view name, std::string_view where) const;
  std::vector<std::string> names(Kind kind) const;  ///< with aliases, without presets; for suggestions
  std::vector<std::string> preset_names() const;

 private:
  std::vector<PolicySpec> policies_;
  std::vector<PresetSpec> presets_;
  std::vector<AbsentSpec> absent_;
};

}  // namespace kvsim::policy
