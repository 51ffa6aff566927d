#include "analysis/requests/policy_choice.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <functional>

#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

using policy::Kind;
using policy::PolicySpec;
using policy::PresetSpec;
using Filter = std::function<bool(const std::string& name, bool oracle)>;

/// Evictions, then presets.
std::vector<std::string> names(const policy::Registry& registry, const Filter& wanted) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (spec.kind == Kind::eviction && policy::complete(spec) && wanted(spec.name, bool(spec.make_oracle)))
      out.push_back(spec.name);
  for (const PresetSpec& preset : registry.presets())
    if (wanted(preset.name, false)) out.push_back(preset.name);
  return out;
}

/// A comma outside parentheses separates nothing.
void refuse_list(const std::string& text) {
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0)
      usage_error("names several policies", "--policy " + text, "Give each its own --policy.");
  }
}

std::vector<std::string> meant_by(const std::string& text, const policy::Registry& registry) {
  if (text == "all")
    return names(registry, [](const std::string& name, bool oracle) {
      return !oracle && name.find('.') == std::string::npos;
    });
  if (text == "oracles") return names(registry, [](const std::string&, bool oracle) { return oracle; });
  if (text.find('*') == std::string::npos) return {text};
  std::vector<std::string> matching = names(
      registry, [&](const std::string& name, bool) { return fnmatch(text.c_str(), name.c_str(), 0) == 0; });
  if (matching.empty())
    usage_error("no policy matches", "--policy " + text, "kvsim policy list names them all.");
  return matching;
}

}  // namespace

std::vector<std::string> chosen_policies(const std::vector<std::string>& given,
                                         const policy::Registry& registry) {
  std::vector<std::string> out;
  for (const std::string& text : given) {
    refuse_list(text);
    const std::vector<std::string> meant = meant_by(text, registry);
    out.insert(out.end(), meant.begin(), meant.end());
  }
  return out;
}

}  // namespace kvsim::analysis
