#include "analysis/kinds/settings.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

Settings::Settings(std::vector<ParamSpec> declared) : declared_(std::move(declared)) {
  for (const ParamSpec& spec : declared_) entries.push_back(parse_value(spec, spec.fallback, "a default"));
}

void Settings::set(std::string_view name, std::string_view value, std::string_view where) {
  const auto spec = std::find_if(declared_.begin(), declared_.end(),
                                 [&](const ParamSpec& candidate) { return candidate.name == name; });
  if (spec == declared_.end())
    usage_error("unknown setting '" + std::string(name) + "'", where,
                suggestion(name, param_names(declared_)));
  entries[static_cast<std::size_t>(spec - declared_.begin())] = parse_value(*spec, value, where);
}

}  // namespace kvsim::analysis
