#include <algorithm>

#include "analysis/kinds/kind.hpp"
#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

Settings::Settings(std::vector<ParamSpec> declared) : declared_(std::move(declared)) {
  for (const ParamSpec& spec : declared_) entries.push_back(parse_value(spec, spec.fallback, "a default"));
}

void Settings::set(std::string_view name, std::string_view value, std::string_view where) {
  const auto spec =
      std::ranges::find_if(declared_, [&](const ParamSpec& candidate) { return candidate.name == name; });
  if (spec == declared_.end())
    usage_error("unknown setting '" + std::string(name) + "'", where,
                suggestion(name, param_names(declared_)));
  entries[static_cast<std::size_t>(spec - declared_.begin())] = parse_value(*spec, value, where);
}

#define KVSIM_KIND(function) Kind function();
#include "analysis/kinds/kinds.def"
#undef KVSIM_KIND

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
#define KVSIM_KIND(function) function(),
#include "analysis/kinds/kinds.def"
#undef KVSIM_KIND
  };
  return all;
}

const Kind& kind_named(std::string_view name) {
  std::vector<std::string> known;
  for (const Kind& kind : kinds()) {
    if (name == kind.name) return kind;
    known.emplace_back(kind.name);
  }
  usage_error("unknown kind of analysis '" + std::string(name) + "'", "", suggestion(name, known));
}

}  // namespace kvsim::analysis
