#pragma once
/// Parses the parameters of a rule that is not a policy, typed like a policy's: "rows=8,pool=avg:7".
#include <string_view>
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// Returns a value for every spec, in their order: the typed one, or the default. Throws Error(usage), placed
/// at `where`, for text of another shape, unknown names and illegal values.
Params option_list(std::string_view text, const std::vector<ParamSpec>& specs, std::string_view where);

}  // namespace kvsim::policy
