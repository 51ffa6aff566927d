#pragma once
/// Reads tensors for arithmetic, and refuses values that are infinite or not a number before they reach a
/// result.
#include <cstdint>
#include <span>

#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// Calls sequence.read(), and throws Error(input) naming the first value that is infinite or not a number.
void read_finite(const trace::Sequence& sequence, trace::Tensor tensor, std::uint32_t layer,
                 std::uint32_t head, std::uint64_t first, std::uint64_t n, std::span<float> out);

}  // namespace kvsim::sim
