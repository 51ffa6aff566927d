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

/// `served` with all tokens stored in the representation of `stored`, which evicts and selects nothing.
/// Memory is counted by cost::sequence_bytes; what steps read and wait for the representation, and what a
/// cached prefix takes, is as of a prompt of `tokens` tokens. Throws Error(usage) where the model's shape
/// does not suit it.
serving::ServedModel represented_model(serving::ServedModel served, const policy::Composition& stored,
                                       std::uint64_t tokens);

}  // namespace kvsim::analysis
