#pragma once
/// The Cholesky factor of a matrix of moments.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// The lower triangular L of L L' = matrix, [n, n], of whose lower triangle it reads; the matrix is positive
/// definite but for rounding, which leaves `least` of a pivot at least.
inline std::vector<double> cholesky_factor(std::span<const double> matrix, std::size_t n, double least) {
  std::vector<double> out(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = matrix[i * n + j];
      for (std::size_t k = 0; k < j; ++k) rest -= out[i * n + k] * out[j * n + k];
      out[i * n + j] = i == j ? std::sqrt(std::max(rest, least)) : rest / out[j * n + j];
    }
  return out;
}

}  // namespace kvsim::policy
