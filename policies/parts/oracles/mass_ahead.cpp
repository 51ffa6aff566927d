#include "policies/parts/oracles/mass_ahead.hpp"

#include "sim/base/error.hpp"

namespace kvsim::policy {

ParamSpec horizon_param() {
  return count_param("horizon", "0", {0, 1 << 30}, "how far into the future attention counts; 0: to the end",
                     "steps");
}

std::size_t horizon_of(const Params& params) {
  const std::size_t steps = params.count("horizon");
  return steps == 0 ? kWholeFuture : steps;
}

MassAhead::MassAhead(const MatrixView& attention, std::size_t prompt, std::size_t horizon)
    : n_steps_(attention.rows), prompt_(prompt), first_(n_steps_ > 0 ? attention.cols - n_steps_ : prompt) {
  if (attention.cols < attention.rows || (first_ != prompt && first_ + 1 != prompt))
    bug("attention of S steps has prompt + S columns, or one fewer", "MassAhead");
  if (horizon == 0) bug("a horizon has at least one step", "MassAhead");
  sums_.assign(n_steps_ * n_tokens(), 0.0);
  for (std::size_t s = n_steps_; s-- > 0;) {
    double* sum = sums_.data() + s * n_tokens();
    const std::size_t n_held = from_step(s).size();
    const auto add = [&](const auto& row, std::size_t n) {
      for (std::size_t j = 0; j < n; ++j) sum[j] += row[j];
    };
    if (horizon >= n_steps_ - s) {
      if (s + 1 < n_steps_) add(from_step(s + 1), n_held);
    } else {
      for (std::size_t later = s + horizon; --later > s;) add(attention.row(later), n_held);
    }
    add(attention.row(s), first_ + s);
  }
}

}  // namespace kvsim::policy
