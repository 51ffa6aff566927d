#pragma once
/// Rotations that leave lengths as they are: the Walsh-Hadamard transform, and random orthogonal directions.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

namespace kvsim::policy {

/// The first three levels of the transform of eight numbers: each becomes its partner and itself, or less
/// itself.
inline void hadamard_of_eight(float* x) {
  using Eight [[gnu::vector_size(32)]] = float;
  Eight v;
  std::memcpy(&v, x, sizeof v);
  v = __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6) + v * Eight{1, -1, 1, -1, 1, -1, 1, -1};
  v = __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5) + v * Eight{1, 1, -1, -1, 1, 1, -1, -1};
  v = __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3) + v * Eight{1, 1, 1, 1, -1, -1, -1, -1};
  std::memcpy(x, &v, sizeof v);
}

/// Multiplies by the symmetric orthogonal matrix with entries (-1)^(ones that i and j share in binary) /
/// sqrt(n), which is its own inverse. The size n is a power of two.
inline void hadamard(std::span<float> x) {
  const bool eights = x.size() >= 8;
  for (std::size_t first = 0; eights && first < x.size(); first += 8) hadamard_of_eight(x.data() + first);
  for (std::size_t half = eights ? 8 : 1; half < x.size(); half *= 2)
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

/// Makes the rows [n, dim] orthogonal to each other in blocks of `dim`, each of this squared length
/// (Gram-Schmidt).
inline void make_orthogonal(std::vector<double>& rows, std::size_t dim, double squared_length) {
  for (std::size_t i = 0; i < rows.size() / dim; ++i) {
    double* const row = rows.data() + i * dim;
    for (std::size_t j = i / dim * dim; j < i; ++j) {
      const double* const other = rows.data() + j * dim;
      const double share = std::inner_product(row, row + dim, other, 0.0) / squared_length;
      for (std::size_t c = 0; c < dim; ++c) row[c] -= share * other[c];
    }
    const double length = std::sqrt(std::inner_product(row, row + dim, row, 0.0));
    for (std::size_t c = 0; c < dim; ++c) row[c] *= std::sqrt(squared_length) / length;
  }
}

}  // namespace kvsim::policy
