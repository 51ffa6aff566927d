#pragma once
/// How much one more token is worth to a lane: the common measure of allocations that spend a budget where it
/// gains most.
#include <span>
#include <vector>

#include "policies/api/allocation.hpp"

namespace kvsim::policy {

/// A lane of b tokens keeps what the eviction protects under b and, with the rest, the positions with the
/// highest worth.
struct TokenGains {
  double at_floor = 0;         ///< sum of what the lane keeps under min(floor, prompt) tokens
  double chosen_at_floor = 0;  ///< of that, what is not protected
  /// What each further token adds, as many as the lane can use above its floor, falling. Where protection
  /// grows with the budget, a token may go to a position of little worth; the gains of the tokens that follow
  /// are then averaged with it, so these gains sum up to at least what the lane keeps, and to exactly that
  /// where an average ends.
  std::vector<double> above{};
};

/// `worth`: of the prompt of a lane of `layer`, from its first token on; tokens beyond its end are worth
/// nothing. Throws Error(input) for a NaN.
TokenGains token_gains(const AllocationRequest& request, std::span<const double> worth,
                       std::size_t layer = 0);

}  // namespace kvsim::policy
