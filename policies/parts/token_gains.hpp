#pragma once
/// What one more token is worth to a lane: the common measure of allocations that spend a budget where it
/// brings most.
#include <span>
#include <vector>

#include "policies/api/allocation.hpp"

namespace kvsim::policy {

/// A lane of b tokens keeps what the eviction protects under b and, with the rest, the positions that are
/// worth most.
struct TokenGains {
  double at_floor = 0;  ///< sum of what it keeps under min(floor, prompt) tokens
  /// What each further token adds, [prompt - floor], falling. Where protection grows with the budget a token
  /// may go to a position of little worth; then the gains of the tokens that follow are averaged with it, so
  /// that what the lane keeps is at most what these sum up to, and equal where the average ends.
  std::vector<double> above{};
};

/// `worth`: of the prompt positions from the first on; those behind the last are worth nothing. Throws
/// Error(input) for one that is not a number.
TokenGains token_gains(const AllocationRequest& request, std::span<const double> worth);

}  // namespace kvsim::policy
