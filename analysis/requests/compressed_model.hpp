#pragma once
/// A served model whose tokens are kept by a policy.
#include <cstdint>
#include <optional>

#include "policies/api/composition.hpp"
#include "sim/replay/budget.hpp"
#include "sim/requests/serving/served_model.hpp"

namespace kvsim::analysis {

/// `served` with its tokens kept as `policy` keeps them at the budget: bytes as of a prompt of `tokens`
/// tokens (stored_token_bytes), and the seconds of sim/cost that the policy adds to prefills and to decoding
/// steps behind prompts of that length. Throws as stored_token_bytes.
serving::ServedModel compressed_model(serving::ServedModel served, const policy::Composition& policy,
                                      const std::optional<sim::Budget>& budget, std::uint64_t tokens);

}  // namespace kvsim::analysis
