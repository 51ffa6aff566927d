#pragma once
/// Multiplies by bf16 weights on the processor's matrix tiles (AMX), to the precision of float: a float is
/// exactly the sum of three bf16 numbers, whose products with bf16 weights are exact in float, and sums are
/// float. This takes three 16-bit products, each at 16 times the speed of one in float.
#include <cstdint>

#include "sim/base/workers.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

/// Whether this program was compiled for matrix tiles and the operating system permits them.
bool tiles_available();

/// y [n, out] = x [n, in] W^T + b with bf16 weights. Must only be called where tiles are available. Numbers
/// below 2^-110 count as zero.
void apply_linear_on_tiles(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y);

}  // namespace kvsim::model::cpu
