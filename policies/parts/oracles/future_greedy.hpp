#pragma once
/// Greedy eviction that knows the future: a token that finds the unit full evicts the resident that is
/// attended least from then on. In practice a strong bound, but not the best schedule: see
/// optimal_retention.hpp.
#include <cstddef>

#include "policies/parts/oracles/retention_plan.hpp"

namespace kvsim::policy {

/// Evicts argmin_j of the attention that j is still to receive within the horizon of `future`; of equals the
/// oldest. budget >= 1, else Error (bug).
RetentionPlan future_greedy(const MassAhead& future, std::size_t budget);

}  // namespace kvsim::policy
