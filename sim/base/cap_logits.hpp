#pragma once
/// Soft caps on logits (Gemma 2).
#include <cstddef>

namespace kvsim {

/// row[i] = cap * tanh(row[i] / cap), nothing if cap is 0. The bits depend on the values alone.
void cap_logits(float* row, std::size_t n, double cap);

}  // namespace kvsim
