#pragma once
/// Codes of single numbers: a group of numbers shares a scale, and each becomes a whole number of few bits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/params.hpp"

namespace kvsim::policy {

/// How the numbers of a group become whole numbers. Scales and least elements are 16-bit floats and are
/// rounded to them before anything is coded, so that what is read back is what a cache could hold. Halves
/// round to even.
enum class ScalarKind {
  offset,   ///< x = code * scale + least: scale = (largest - least) / (2^bits - 1) (KIVI, ZipCache, GEAR)
  integer,  ///< x = (code - zero) * scale: zero is one of the codes, and 0 is read back exactly (RotateKV,
            ///< CSKV)
  absmax,   ///< x = code * scale, as many codes below 0 as above it: scale = largest |x| / (2^(bits-1) - 1)
};

struct ScalarCode {
  ScalarKind kind = ScalarKind::offset;
  std::uint64_t bits = 4;  ///< 1 to 8 (absmax: 2 to 8); 16: stored as they come
  float clip = 1;          ///< the least and the largest number of a group count times this; what lies beyond
                           ///< has the first or the last code
  /// Bits of a second code for what the first leaves over, a whole number of scale / 2^remainder from
  /// -2^(remainder - 1) on that is clipped before it is rounded; 0: there is none. Of `offset` alone.
  std::uint64_t remainder = 0;

  bool exact() const { return bits >= 16; }
  /// Bits that a group takes beside its codes.
  std::uint64_t group_bits() const;
  /// Replaces `n` numbers, `stride` apart, by what their codes read back as. In a group whose numbers are all
  /// equal, or too close for a 16-bit scale, all read back as the least one (offset), as 0 (integer, absmax).
  void code(float* first, std::size_t n, std::size_t stride = 1) const;
};

ScalarKind scalar_kind(std::string_view name);

/// `bits` (default as given) and `zero` (offset | integer | absmax).
ParamSpec bits_param(const char* fallback);
ParamSpec zero_param();
/// Throws Error(usage) for a number of bits that the kind has no codes for.
ScalarCode scalar_code(const ParamValues& params, std::string_view where);

// Non-uniform codes: a number is stored as the nearest of a few levels, which are the centres of clusters of
// the numbers that were seen before.

/// The index of the level nearest to x, of two the lower; the first for NaN. `levels` ascend.
std::size_t nearest_level(std::span<const float> levels, float x);

/// Lloyd's k-means of single numbers (Euclidean, unweighted): at most `rounds` rounds from centres at even
/// quantiles. Centres ascend and are rounded to 16-bit floats at the end; those that no number is nearest to
/// stay where they were. `numbers` are finite and at least one.
std::vector<float> level_means(std::vector<float> numbers, std::size_t levels, std::size_t rounds);

// Error of storing a vector in few bits.

/// Returns the Euclidean distance between x and x after asymmetric quantisation to `bits` bits with one scale
/// and one zero point, as Q-Hitter's code does it: 2^bits - 1 steps from the least to the largest element (a
/// range below 1e-5 counts as 1e-5), rounded to even. The zero point is one of the levels, so a range that
/// does not hold zero is clipped. Codes of representations, above, differ in all of that: their
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
