#pragma once
/// 16-bit floats as stored in checkpoints and traces: widening is exact, narrowing rounds to nearest even.
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvsim {

inline float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t narrow_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t rest = bits & 0x7fffU;
  if (rest >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((rest & 0x3ffU) << 13));
  // Scaling by 2^112 moves the exponent bias and normalises subnormals, exactly.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

inline std::uint16_t narrow_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t rest = bits & 0x7fffffffU;
  if (rest > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (rest >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to infinity
  if (rest < 0x38800000U) {  // subnormal: the addition rounds in the last place of 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = rest + 0xfffU + ((rest >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

/// How a tensor's elements are stored.
enum class Elem : std::uint8_t { f32, f16, bf16 };

constexpr std::size_t elem_bytes(Elem elem) {
  return elem == Elem::f32 ? 4 : 2;
}
constexpr const char* elem_name(Elem elem) {
  return elem == Elem::f32 ? "f32" : elem == Elem::f16 ? "f16" : "bf16";
}

/// Convert `count` stored elements at `from` (any alignment) to floats and back.
void widen(Elem elem, const void* from, std::size_t count, float* to);
void narrow(Elem elem, const float* from, std::size_t count, void* to);

}  // namespace kvsim
