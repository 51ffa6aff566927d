#pragma once
/// Widens a GGUF file's elements to floats: bit for bit as the package gguf of PyPI does, which multiplies
/// and adds in float, in the order of the format's reference (ggml-quants.c).
#include <cstddef>
#include <cstdint>

#include "traces/model/gguf_file.hpp"

namespace kvsim::model {

/// A quantised block taken apart: element i is scales[g] * numbers[i] + addends[g] with g = i / group. The
/// product is exact in float, so that the sum is rounded once, fused or not.
struct BlockParts {
  std::int8_t numbers[256];
  float scales[16], addends[16];
};
/// What all blocks of a type have in common.
struct BlockForm {
  std::uint32_t group;  ///< elements that share a scale
  std::uint32_t bits;   ///< 4: numbers are least ... least + 15; 8: any
  std::int32_t least;   ///< 0 for 8 bits
  bool half;            ///< whether scales and addends are 16-bit floats
};
/// Both are for quantised types that can be widened.
BlockForm block_form(const GgufType& type);
void part_block(const GgufType& type, const std::byte* block, BlockParts& to);

/// Whether widen_blocks() knows the type: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K or
/// MXFP4.
bool can_widen(const GgufType& type);

/// Widens `blocks` blocks of a type that is known, of any alignment, to blocks * type.items floats.
void widen_blocks(const GgufType& type, const std::byte* from, std::uint64_t blocks, float* to);

}  // namespace kvsim::model
