#pragma once
/// Soft caps on logits (Gemma 2).
#include <cmath>
#include <cstddef>

namespace kvsim {

/// row[i] = cap * tanh(row[i] / cap), nothing if cap is 0. The bits depend on the values alone.
void cap_logits(float* row, std::size_t n, double cap);

/// The same of one, in double.
inline double capped(double logit, double cap) {
  return cap == 0 ? logit : cap * std::tanh(logit / cap);
}

}  // namespace kvsim
