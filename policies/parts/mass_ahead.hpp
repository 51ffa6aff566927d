#pragma once
/// How much attention every token of a unit is still to receive: what is lost when it leaves.
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "policies/api/spec.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

inline constexpr std::size_t kWholeFuture = std::numeric_limits<std::size_t>::max();

/// The parameter `horizon`: how many steps of the future count; 0, the default: all of them.
ParamSpec horizon_param();
/// Its value; kWholeFuture for 0.
std::size_t horizon_of(const Params& params);

/// The decode phase of a unit, seen from its end. Positions 0 .. prompt-1 are the prompt; step s = 0 .. S-1
/// generates position prompt + s.
class MassAhead {
 public:
  /// `attention`: [S, prompt + S], row s = attention of step s on every position, averaged over the unit's
  /// query heads; finite and not negative. Entries a query cannot see (beyond prompt + s) are not read.
  /// Only steps s .. s + horizon - 1 count as the future of step s.
  /// Sums run in double from the last step to the first. Throws Error (bug) when the shape does not fit.
  MassAhead(const MatrixView& attention, std::size_t prompt, std::size_t horizon = kWholeFuture);

  std::size_t n_steps() const { return n_steps_; }
  std::size_t prompt() const { return prompt_; }
  std::size_t n_tokens() const { return prompt_ + n_steps_; }

  /// Per position that exists before step s, i.e. 0 .. prompt + s - 1: attention received from step s on.
  std::span<const double> from_step(std::size_t s) const {
    return {sums_.data() + s * n_tokens(), prompt_ + s};
  }

 private:
  std::size_t n_steps_, prompt_;
  std::vector<double> sums_;  ///< [S, prompt + S]
};

}  // namespace kvsim::policy
