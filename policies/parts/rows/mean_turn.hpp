#pragma once
/// How a rotation turns on average over positions to come: what is expected of a query that is not there yet.
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "sim/base/rotary.hpp"

namespace kvsim::policy {

/// Multiplies a pair of components by the matrix c -s / s c.
struct Turn {
  double c = 1, s = 0;

  void apply(double& a, double& b) const {
    const double x = a, y = b;
    a = c * x - s * y;
    b = c * y + s * x;
  }
};

/// The two components of a pair.
inline std::pair<std::size_t, std::size_t> components(const Rotary& rotary, std::size_t pair) {
  const bool split = rotary.layout == RotaryLayout::half_split;
  const std::size_t a = rotary.first + (split ? pair : 2 * pair);
  return {a, a + (split ? rotary.inv_freq.size() : 1)};
}

/// Returns the mean turn of each pair over `positions`, of which there is at least one, times
/// attention_factor.
inline std::vector<Turn> mean_turn(const Rotary& rotary, std::span<const std::size_t> positions) {
  std::vector<Turn> out;
  for (const float frequency : rotary.inv_freq) {
    Turn sum{0, 0};
    for (const std::size_t position : positions) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      sum.c += std::cos(angle);
      sum.s += std::sin(angle);
    }
    sum.c *= rotary.attention_factor / static_cast<double>(positions.size());
    sum.s *= rotary.attention_factor / static_cast<double>(positions.size());
    out.push_back(sum);
  }
  return out;
}

}  // namespace kvsim::policy
