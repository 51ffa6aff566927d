#pragma once
/// Codes of a group of numbers, written from their definition.
#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/base/half.hpp"

namespace kvsim::policy::test {

inline double as_half(double x) {
  return static_cast<double>(widen_f16(narrow_f16(static_cast<float>(x))));
}

/// What the numbers of a group read back as with a scale and the least number in 16 bits each.
inline std::vector<double> slowly_coded(std::vector<double> group, int bits) {
  if (bits == 16) return group;
  const auto [least, largest] = std::ranges::minmax(group);
  const double step = as_half((largest - least) / (std::pow(2, bits) - 1)), offset = as_half(least);
  for (double& x : group) {
    const double code = step > 0 ? std::nearbyint((x - offset) / step) : 0;
    x = std::clamp(code, 0.0, std::pow(2, bits) - 1) * step + offset;
  }
  return group;
}

}  // namespace kvsim::policy::test
