#pragma once
/// Published allocations rarely spend exactly their budget. Each is here once with an exact total and, under
/// `variant`, as the paper's formula or a released code computes it.
#include <string>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Declares `variant`; `published`: its values besides `exact`, the default.
ParamSpec variant_param(const std::vector<std::string>& published);
/// PolicySpec::inexact of such allocations: true for every variant but `exact`.
bool published_variant(const Params& params);

}  // namespace kvsim::policy
