#include "analysis/asked/policy_choice.hpp"

#include <fnmatch.h>

#include <functional>

#include "sim/base/error.hpp"
#include "sim/base/split.hpp"

namespace kvsim::analysis {
namespace {

using policy::Kind;
using policy::PolicySpec;
using policy::PresetSpec;
using Filter = std::function<bool(const std::string& name, bool oracle)>;

/// Evictions, then presets. Traces have the log probabilities of their prompts only where they were asked
/// for.
std::vector<std::string> names(const policy::Registry& registry, const Filter& wanted) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (spec.kind() == Kind::eviction && policy::complete(spec) && !spec.needs.surprises &&
        wanted(spec.name, spec.is_oracle()))
      out.push_back(spec.name);
  for (const PresetSpec& preset : registry.presets())
    if (wanted(preset.name, false)) out.push_back(preset.name);
  return out;
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
  for (const std::string& text : listed_policies(given)) {
    const std::vector<std::string> meant = meant_by(text, registry);
    out.insert(out.end(), meant.begin(), meant.end());
  }
  return out;
}

std::vector<std::string> listed_policies(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& list : given)
    for (std::string& item : comma_list(list)) out.push_back(std::move(item));
  return out;
}

}  // namespace kvsim::analysis
