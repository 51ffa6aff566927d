#pragma once
/// Greedy eviction with the future in hand: whoever finds the unit full drops what is attended least from
/// here on. A strong bound in practice, but not the best schedule: see optimal_retention.hpp.
#include <cstddef>

#include "policies/parts/retention_plan.hpp"

namespace kvsim::policy {

/// Drops argmin_j of the attention j receives in the next `horizon` steps, the coming one included; of equals
/// the oldest. `attention` and errors: as FutureMass. budget >= 1, else Error (bug).
RetentionPlan future_greedy(const MatrixView& attention, std::size_t prompt, std::size_t budget,
                            std::size_t horizon = kWholeFuture);

}  // namespace kvsim::policy
