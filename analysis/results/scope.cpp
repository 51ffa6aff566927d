#include "analysis/results/scope.hpp"

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {

namespace {

const std::vector<std::string> kNames{"all", "layer", "head", "step"};  // in the order of Scope

}  // namespace

const char* scope_name(Scope scope) {
  return kNames[static_cast<std::size_t>(scope)].c_str();
}

Scope parse_scope(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Scope>(i);
  usage_error("unknown scope '" + std::string(name) + "'", "", suggestion(name, kNames));
}

}  // namespace kvsim::analysis
