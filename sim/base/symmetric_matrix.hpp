#pragma once
/// Factors of symmetric matrices [n, n], stored row by row.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim {

/// The lower triangular L of L L' = matrix, of whose lower triangle it reads; the matrix is positive definite
/// but for rounding, which leaves `least` of a pivot at least.
std::vector<double> cholesky_factor(std::span<const double> matrix, std::size_t n, double least);

/// The X of L L' X = right, [n, width] both, in its place.
void cholesky_solve(std::span<const double> factor, std::size_t n, std::span<double> right,
                    std::size_t width = 1);

struct Eigenvectors {
  std::vector<double> values{};   ///< falling
  std::vector<double> vectors{};  ///< [n, n], one per row; its number of largest magnitude is positive
};

/// Reads the lower triangle.
Eigenvectors eigenvectors(std::span<const double> matrix, std::size_t n);

}  // namespace kvsim
