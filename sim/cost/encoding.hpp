#pragma once
/// Size of keys and values that are stored in few bits.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::cost {

/// A group as long as the vector.
inline constexpr std::uint64_t kWholeVector = ~std::uint64_t{0};

/// The encoding of keys or of values. `group` neighbouring elements share `group_bits` of scale and zero
/// point.
struct Encoding {
  std::uint64_t bits = 16;  ///< per element
  std::uint64_t group = 0;  ///< elements per group; 0: nothing is shared
  enum class Grouping {
    vector,   ///< neighbours are components of one token's vector
    channel,  ///< neighbours are one component of successive tokens (KIVI's keys)
  } grouping = Grouping::vector;
  std::uint64_t group_bits = 0;
  /// KIVI's residual R: the latest R tokens, or the remainder of n by R, stay in 16 bits.
  std::uint64_t residual = 0;
  enum class Residual { latest, remainder } residual_rule = Residual::latest;
};

/// Returns the whole bytes of one lane's `tokens` vectors of `dim` components: elements packed, groups
/// rounded up. Throws Error(usage) when they do not fit 64 bits.
std::uint64_t encoded_bytes(const Encoding& encoding, std::uint64_t tokens, std::uint64_t dim);
/// Returns the bytes that `empty` slots without a token add to it; they count as encoded tokens, since a
/// residual has no empty slots.
std::uint64_t empty_bytes(const Encoding& encoding, std::uint64_t tokens, std::uint64_t empty,
                          std::uint64_t dim);

struct KvEncoding {
  std::string name = "fp16", source{};
  Encoding keys{}, values{};
};

/// Returns the encoding fp16 (bf16 is as large), fp32, fp8, int8 (per token and head), nvfp4, flexgen4, kivi2
/// or kivi4. Throws Error(usage) with the nearest names for others.
KvEncoding find_encoding(std::string_view name);
const std::vector<KvEncoding>& known_encodings();

}  // namespace kvsim::cost
