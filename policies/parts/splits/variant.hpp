#pragma once
/// Published allocations rarely spend exactly their budget. Each is here once with an exact total and, under
/// `variant`, as the paper's formula or a released code computes it.
#include <string>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Declares `variant`; `published`: its values besides `exact`, the default.
inline ParamSpec variant_param(const std::vector<std::string>& published) {
  std::vector<std::string> choices = {"exact"};
  choices.insert(choices.end(), published.begin(), published.end());
  return choice_param(
      "variant", "exact", choices,
      "exact: the total is what was asked for; else the published arithmetic, whatever its total");
}
/// PolicySpec::inexact of such allocations: true for every variant but `exact`.
inline bool published_variant(const Params& params) {
  return params.word("variant") != "exact";
}

}  // namespace kvsim::policy
