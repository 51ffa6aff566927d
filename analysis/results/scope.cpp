#include "analysis/results/scope.hpp"

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

const char* scope_name(Scope scope) {
  switch (scope) {
    case Scope::all:
      return "all";
    case Scope::layer:
      return "layer";
    case Scope::head:
      return "head";
    case Scope::step:
      return "step";
  }
  bug("unknown scope");
}

Scope parse_scope(std::string_view name) {
  for (const Scope scope : {Scope::all, Scope::layer, Scope::head, Scope::step})
    if (name == scope_name(scope)) return scope;
  usage_error("unknown scope '" + std::string(name) + "'", "",
              suggestion(name, {"all", "layer", "head", "step"}));
}

}  // namespace kvsim::analysis
