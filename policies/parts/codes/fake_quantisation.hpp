#pragma once
/// Error of storing a vector in few bits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace kvsim::policy {

/// Returns the Euclidean distance between x and x after asymmetric quantisation to `bits` bits with one scale
/// and one zero point, as Q-Hitter's code does it: 2^bits - 1 steps from the least to the largest element (a
/// range below 1e-5 counts as 1e-5), rounded to even. The zero point is one of the levels, so a range that
/// does not hold zero is clipped. Codes of representations (scalar_code.hpp) differ in all of that: their
/// scales are 16-bit floats, and the range of a code with a zero point holds zero.
inline double quantisation_error(std::span<const float> x, std::size_t bits) {
  const auto [least, largest] = std::minmax_element(x.begin(), x.end());
  const double levels = std::exp2(static_cast<double>(bits)) - 1;
  const double scale = std::max(static_cast<double>(*largest) - static_cast<double>(*least), 1e-5) / levels;
  const double zero = std::clamp(-std::nearbyint(static_cast<double>(*least) / scale), 0.0, levels);
  double squares = 0;
  for (const float value : x) {
    const double exact = static_cast<double>(value);
    const double level = std::clamp(std::nearbyint(exact / scale) + zero, 0.0, levels);
    const double error = (level - zero) * scale - exact;
    squares += error * error;
  }
  return std::sqrt(squares);
}

}  // namespace kvsim::policy
