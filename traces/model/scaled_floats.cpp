#include "traces/model/scaled_floats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sim/base/half.hpp"

namespace kvsim::model {

float widen_e4m3(std::uint8_t bits) {
  constexpr int kBias = 7, kFractionBits = 3;
  const int exponent = bits >> kFractionBits & 15, fraction = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0F : 1.0F;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), 1 - kBias - kFractionBits);
  return sign * std::ldexp(static_cast<float>(8 + fraction), exponent - kBias - kFractionBits);
}

std::vector<std::uint16_t> scaled_rows(const ScaledMatrix& matrix) {
  static const std::array<float, 256> kWide = [] {
    std::array<float, 256> wide;
    for (std::size_t bits = 0; bits < wide.size(); ++bits)
      wide[bits] = widen_e4m3(static_cast<std::uint8_t>(bits));
    return wide;
  }();
  const std::uint64_t rows = matrix.columns == 0 ? 0 : matrix.numbers.size() / matrix.columns;
  const std::uint64_t in_row = (matrix.columns + matrix.block_columns - 1) / matrix.block_columns;
  std::vector<std::uint16_t> products;
  products.reserve(matrix.numbers.size());
  const std::byte* from = matrix.numbers.data();
  for (std::uint64_t row = 0; row < rows; ++row) {
    const float* scales = matrix.scales.data() + row / matrix.block_rows * in_row;
    for (std::uint64_t first = 0; first < matrix.columns; first += matrix.block_columns, ++scales)
      for (std::uint64_t i = first; i < std::min(first + matrix.block_columns, matrix.columns); ++i)
        products.push_back(narrow_bf16(kWide[static_cast<std::uint8_t>(*from++)] * *scales));
  }
  return products;
}

const GgufType& mxfp4() {
  static constexpr GgufType kType{39, "MXFP4", 32, 17};
  return kType;
}

void append_mxfp4(std::span<const std::byte> pairs, std::span<const std::byte> exponents,
                  std::vector<std::byte>& blocks) {
  constexpr std::size_t kPairs = 16;  // of a block
  const auto number = [&](std::size_t at) { return pairs[at / 2] >> (at % 2 * 4) & std::byte{15}; };
  for (std::size_t block = 0; block < exponents.size(); ++block) {
    blocks.push_back(exponents[block]);
    for (std::size_t i = 0; i < kPairs; ++i) {
      const std::size_t first = block * 2 * kPairs + i;  // it shares a byte with the one half a block on
      blocks.push_back(number(first) | number(first + kPairs) << 4);
    }
  }
}

}  // namespace kvsim::model
