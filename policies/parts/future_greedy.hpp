#pragma once
/// Greedy eviction with the future in hand: whoever finds the unit full drops what is attended least from
/// here on. A strong bound in practice, but not the best schedule: see optimal_retention.hpp.
#include <cstddef>

#include "policies/parts/retention_plan.hpp"

namespace kvsim::policy {

/// Drops argmin_j of the attention j is still to receive within the horizon of `future`; of equals the
/// oldest. budget >= 1, else Error (bug).
RetentionPlan future_greedy(const MassAhead& future, std::size_t budget);

}  // namespace kvsim::policy
