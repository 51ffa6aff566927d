#pragma once
/// Lengths of a key or a value.
#include <cmath>
#include <span>

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

}  // namespace kvsim::policy
