#pragma once
/// The Walsh-Hadamard transform.
#include <cmath>
#include <cstddef>
#include <span>

namespace kvsim::policy {

/// Multiplies by the symmetric orthogonal matrix with entries (-1)^(ones that i and j share in binary) /
/// sqrt(n), which is its own inverse. The size n is a power of two.
inline void hadamard(std::span<float> x) {
  for (std::size_t half = 1; half < x.size(); half *= 2)
    for (std::size_t first = 0; first < x.size(); first += 2 * half)
      for (std::size_t i = first; i < first + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  const float factor = 1 / std::sqrt(static_cast<float>(x.size()));
  for (float& number : x) number *= factor;
}

/// Operations of it for one number: an addition per level, and scaling.
inline double hadamard_ops(std::size_t n) {
  return 1 + std::log2(static_cast<double>(n < 2 ? 2 : n));
}

}  // namespace kvsim::policy
