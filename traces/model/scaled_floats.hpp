#pragma once
/// Weights in 8 and 4 bits that a safetensors checkpoint stores with scales beside them (DeepSeek V3,
/// gpt-oss).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "traces/model/gguf_file.hpp"

namespace kvsim::model {

/// A number of 4 bits of exponent and 3 of fraction without infinities (F8_E4M3; arXiv 2209.05433, table 1).
float widen_e4m3(std::uint8_t bits);

/// A matrix of such numbers, row-major with `columns`, in blocks that share a factor.
struct ScaledMatrix {
  std::span<const std::byte> numbers;
  std::uint64_t columns = 0;
  std::uint64_t block_rows = 0, block_columns = 0;
  /// Row-major, of each block; the last ones of rows and columns may be narrower.
  std::span<const float> scales;
};
/// The products in bf16, rounded once.
std::vector<std::uint16_t> scaled_rows(const ScaledMatrix& matrix);

/// Blocks of the type MXFP4 of GGUF files.
const GgufType& mxfp4();
/// Appends a row to blocks of that type: `pairs` holds two neighbouring numbers a byte, the first in the low
/// half, `exponents` that of the factor of each 32 numbers.
void append_mxfp4(std::span<const std::byte> pairs, std::span<const std::byte> exponents,
                  std::vector<std::byte>& blocks);

}  // namespace kvsim::model
