#pragma once
/// Whatever evictions are registered, for laws that hold for all of them.
#include <string>
#include <vector>

#include "policies/builtin.hpp"

namespace kvsim::test {

/// Of those that run with their defaults: names, each name with every other choice of its parameters that are choices, and presets.
inline std::vector<std::string> every_eviction() {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind != policy::Kind::eviction || !policy::complete(spec)) continue;
    out.push_back(spec.name);
    for (const policy::ParamSpec& param : spec.params)
      for (const std::string& choice : param.choices)
        if (choice != param.fallback) out.push_back(spec.name + "(" + param.name + "=" + choice + ")");
  }
  for (const policy::PresetSpec& preset : policy::builtin().presets()) out.push_back(preset.name);
  return out;
}

}  // namespace kvsim::test
