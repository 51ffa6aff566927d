#pragma once
/// Codes of single numbers: a group of numbers shares a scale, and each becomes a whole number of few bits.
#include <cstddef>
#include <cstdint>
#include <string_view>

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

}  // namespace kvsim::policy
