#include "analysis/results/policy_role.hpp"

namespace kvsim::analysis {

bool is_oracle(const policy::Composition& composition) {
  return composition.eviction.spec != nullptr && composition.eviction.spec->is_oracle();
}

bool has_own_budget(const policy::Composition& composition) {
  return composition.eviction.spec != nullptr &&
         (composition.eviction.spec->own_budget() || composition.allocation.own_total());
}

std::string role_name(bool oracle, bool own_budget) {
  return oracle ? "oracle" : own_budget ? "own_budget" : "policy";
}

}  // namespace kvsim::analysis
