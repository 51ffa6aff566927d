#pragma once
/// Codes of a group of numbers, written from their definition.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "sim/base/half.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

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

/// The cache's lane holds what a slow version of its codec says. `Slow`: tokens() are its positions, with
/// `key` and `value`.
template <class Slow>
void compare_with(const RepresentedCache& cache, const Slow& slow, std::size_t lane) {
  REQUIRE(cache.rows().slots() == slow.tokens().size());
  for (const auto& [position, token] : slow.tokens())
    for (std::size_t c = 0; c < token.key.size(); ++c) {
      CAPTURE(lane, position, c);
      REQUIRE(static_cast<double>(cache.key(position, c, lane)) == Approx(token.key[c]).margin(1e-4));
      REQUIRE(static_cast<double>(cache.value(position, c, lane)) == Approx(token.value[c]).margin(1e-4));
    }
}

}  // namespace kvsim::policy::test
