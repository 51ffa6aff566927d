#include "analysis/kinds/kind.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

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
