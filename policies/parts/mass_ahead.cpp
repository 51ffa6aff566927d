#include "policies/parts/mass_ahead.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {

ParamSpec horizon_param() {
  return {.name = "horizon",
          .type = ParamType::count,
          .fallback = "0",
          .max = 1 << 30,
          .unit = "steps",
          .help = "how far into the future attention counts; 0: to the end"};
}

std::size_t horizon_of(const Params& params) {
  const std::size_t steps = params.count("horizon");
  return steps == 0 ? kWholeFuture : steps;
}

MassAhead::MassAhead(const MatrixView& attention, std::size_t prompt, std::size_t horizon)
    : n_steps_(attention.rows), prompt_(prompt) {
  if (attention.rows > 0 && attention.cols != prompt + attention.rows)
    bug("attention of S steps has prompt + S columns", "MassAhead");
  if (horizon == 0) bug("a horizon has at least one step", "MassAhead");
  sums_.assign(n_steps_ * n_tokens(), 0.0);
  for (std::size_t s = n_steps_; s-- > 0;) {
    double* sum = sums_.data() + s * n_tokens();
    const std::size_t n_seen = prompt_ + s;
    const auto add = [&](const auto& row) {
      for (std::size_t j = 0; j < n_seen; ++j) sum[j] += row[j];
    };
    if (horizon >= n_steps_ - s) {
      if (s + 1 < n_steps_) add(from_step(s + 1));
      add(attention.row(s));
    } else {
      for (std::size_t later = s + horizon; later-- > s;) add(attention.row(later));
    }
  }
}

}  // namespace kvsim::policy
