#pragma once
/// What a policy is in a comparison, as the column `role` of results says it.
#include <string>

#include "policies/api/composition.hpp"

namespace kvsim::analysis {

/// Knows the future: a bound at its own split, not a policy.
bool is_oracle(const policy::Composition& composition);
/// Decides by itself how much it keeps, whatever the budget.
bool has_own_budget(const policy::Composition& composition);

/// "oracle", "own_budget" or "policy".
std::string role_name(bool oracle, bool own_budget);

}  // namespace kvsim::analysis
