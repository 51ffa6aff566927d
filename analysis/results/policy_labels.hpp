#pragma once
/// Short names for the policies of a table.
#include <map>
#include <string>
#include <vector>

#include "analysis/results/rows.hpp"
#include "policies/api/composition.hpp"

namespace kvsim::analysis {

/// params -> label: the row's policy name; where one name stands for several parameter sets, followed by the
/// parameters in which those differ: "h2o(recent=0.9)".
std::map<std::string, std::string> policy_labels(const std::vector<Row>& rows);
/// The same of a table with columns policy and params.
std::map<std::string, std::string> policy_labels(const Records& rows);

// What a policy is in a comparison, as the column `role` of results says it.

/// Knows the future: a bound at its own split, not a policy.
bool is_oracle(const policy::Composition& composition);
/// Decides by itself how much it keeps, whatever the budget.
bool has_own_budget(const policy::Composition& composition);

/// "oracle", "own_budget" or "policy".
std::string role_name(bool oracle, bool own_budget);

}  // namespace kvsim::analysis
