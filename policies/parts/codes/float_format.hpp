#pragma once
/// Small binary floats without infinities in use: numbers beyond the largest become the largest.
#include <algorithm>
#include <cmath>
#include <span>

#include "sim/base/half.hpp"

namespace kvsim::policy {

struct FloatFormat {
  int mantissa_bits = 3;
  int least_exponent = -6;  ///< of normal numbers
  float largest_number = 448;

  float largest() const { return largest_number; }
  /// The nearest number of the format; of two the even one. NaN stays NaN.
  float nearest(float x) const {
    const float magnitude = std::fabs(x);
    if (!(magnitude > 0)) return x;
    if (magnitude >= largest_number) return std::copysign(largest_number, x);
    const int exponent = std::max(std::ilogb(magnitude), least_exponent);
    const float step = std::ldexp(1.0F, exponent - mantissa_bits);
    return std::copysign(std::min(std::nearbyint(magnitude / step) * step, largest_number), x);
  }
};

/// OCP 8-bit floats (Open Compute Project, OFP8, revision 1.0): E4M3 has no infinities, E5M2's are not used.
inline constexpr FloatFormat kE4M3{3, -6, 448};
inline constexpr FloatFormat kE5M2{2, -14, 57344};
/// OCP 4-bit floats (Microscaling formats, MX, revision 1.0): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
inline constexpr FloatFormat kE2M1{1, 0, 6};

/// For codes that mix the numbers of a vector, none of which may then be beyond all bounds: NaN becomes 0.
inline void bound(std::span<float> numbers) {
  constexpr float kMost = 0x1p100F;
  for (float& x : numbers) x = std::isnan(x) ? 0 : std::clamp(x, -kMost, kMost);
}

/// As a 16-bit float of IEEE 754; beyond its range, its largest number.
inline float nearest_half(float x) {
  constexpr float kLargest = 65504;
  return widen_f16(narrow_f16(std::clamp(x, -kLargest, kLargest)));
}

}  // namespace kvsim::policy
