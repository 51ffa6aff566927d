#pragma once
/// Compositions of all registered policies, for laws that hold for every one.
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"

namespace kvsim::test {

/// Returns, for the evictions that run with their defaults, the names, each name with every other value of
/// its choice parameters, and the presets that store numbers as they come, read all of them, and need no
/// second pass.
inline std::vector<std::string> every_eviction() {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::eviction || !policy::complete(spec)) continue;
    out.push_back(spec.name);
    for (const ParamSpec& param : spec.params)
      for (const std::string& choice : param.choices)
        if (choice != param.fallback) out.push_back(spec.name + "(" + param.name + "=" + choice + ")");
  }
  for (const policy::PresetSpec& preset : policy::builtin().presets()) {
    const policy::Composition system = policy::parse_composition(preset.name, policy::builtin());
    if (!system.representation && !system.selection && !system.needs().second_pass)
      out.push_back(preset.name);
  }
  return out;
}

/// Returns `eviction` with every allocation that needs no file, and each with every other value of its choice
/// parameters.
inline std::vector<std::string> every_allocation(const std::string& eviction) {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::allocation || !policy::complete(spec)) continue;
    const std::string text = eviction + "+" + spec.name;
    out.push_back(text);
    for (const ParamSpec& param : spec.params)
      for (const std::string& choice : param.choices)
        if (choice != param.fallback) out.push_back(text + "(" + param.name + "=" + choice + ")");
  }
  return out;
}

/// Returns the evictions without oracles, and every allocation behind an eviction it can split.
inline std::vector<std::string> every_policy() {
  std::vector<std::string> out;
  for (const std::string& text : every_eviction())
    if (!policy::parse_composition(text, policy::builtin()).eviction.spec->is_oracle()) out.push_back(text);
  for (const std::string& text : every_allocation("snapkv(window=4)")) out.push_back(text);
  return out;
}

}  // namespace kvsim::test
