#pragma once
#include <vector>

#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// The replacement policies that ship with kvsim; none where it was built without KVSIM_REQUESTS.
std::vector<PolicySpec> replacements();

}  // namespace kvsim::policy
