#pragma once
/// Mass ahead: how much attention every token of a unit is still to receive, which is what evicting it loses.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

inline constexpr std::size_t kWholeFuture = std::numeric_limits<std::size_t>::max();

/// Declares the parameter `horizon`: how many steps of the future count; 0, the default: all of them.
ParamSpec horizon_param();
/// Returns its value; kWholeFuture for 0.
std::size_t horizon_of(const Params& params);

/// The measured steps of a unit (policy::Future), summed from their end. Positions 0 .. prompt-1 are the
/// prompt; the query of step s = 0 .. S-1 is at position first + s, with first = prompt or prompt - 1.
class MassAhead {
 public:
  /// `attention`: [S, first + S], row s = attention of step s on every position, averaged over the unit's
  /// query heads; finite and not negative. Entries that a query cannot see (beyond first + s) are not read.
  /// Only steps s .. s + horizon - 1 count as the future of step s. Sums run in double from the last step to
  /// the first. Throws Error (bug) when the shape does not fit.
  MassAhead(const MatrixView& attention, std::size_t prompt, std::size_t horizon = kWholeFuture);

  std::size_t n_steps() const { return n_steps_; }
  std::size_t prompt() const { return prompt_; }
  std::size_t first() const { return first_; }
  std::size_t n_tokens() const { return first_ + n_steps_; }

  /// Returns, per position that may be held before step s (the prompt and the steps before), the attention
  /// received from step s on, without the attention of a position's own query, which always finds its own
  /// key.
  std::span<const double> from_step(std::size_t s) const {
    return {sums_.data() + s * n_tokens(), std::max(prompt_, first_ + s)};
  }

 private:
  std::size_t n_steps_, prompt_, first_;
  std::vector<double> sums_;  ///< [S, first + S]
};

}  // namespace kvsim::policy
