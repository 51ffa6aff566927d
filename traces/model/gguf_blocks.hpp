#pragma once
/// Widens a GGUF file's elements to floats: bit for bit as the package gguf of PyPI does, which multiplies
/// and adds in float, in the order of the format's reference (ggml-quants.c).
#include <cstddef>
#include <cstdint>

#include "traces/model/gguf_file.hpp"

namespace kvsim::model {

/// Whether widen_blocks() knows the type: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K.
bool can_widen(const GgufType& type);

/// Widens `blocks` blocks of a type that is known, of any alignment, to blocks * type.items floats.
void widen_blocks(const GgufType& type, const std::byte* from, std::uint64_t blocks, float* to);

}  // namespace kvsim::model
