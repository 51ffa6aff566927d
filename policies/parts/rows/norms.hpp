#pragma once
/// Lengths of a key or a value.
#include <cmath>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

/// Returns the sum of squares in double, added component after component.
inline double squared_norm(std::span<const float> row) {
  double squares = 0;
  for (const float x : row) squares += static_cast<double>(x) * static_cast<double>(x);
  return squares;
}

inline double euclidean_norm(std::span<const float> row) {
  return std::sqrt(squared_norm(row));
}

/// Returns the sum of absolute values in double, added component after component.
inline double l1_norm(std::span<const float> row) {
  double sum = 0;
  for (const float x : row) sum += std::abs(static_cast<double>(x));
  return sum;
}

/// How much a value can change a layer's output through one query head's part of the output projection.
enum class Norm { l1, euclidean };

/// Returns the norm of every row of values @ weights; values [n, dim], weights [dim, hidden]. Products are
/// summed in float over dim, as a model computes them, and the norm in double.
std::vector<double> projected_norms(const MatrixView& values, const MatrixView& weights,
                                    Norm norm = Norm::l1);

}  // namespace kvsim::policy
