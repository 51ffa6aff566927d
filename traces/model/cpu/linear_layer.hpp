#pragma once
/// Products with a checkpoint's matrices, in float.
#include <cstdint>

#include "sim/base/workers.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

/// y [n, out] = x [n, in] W^T + b. 16-bit weights are read as they lie, and widened in registers (few tokens)
/// or in panels that stay in cache; bf16 weights meet many tokens on matrix tiles where there are any
/// (tile_product.hpp). A token's outputs depend on how many tokens there are only through that choice.
void apply_linear(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y);

}  // namespace kvsim::model::cpu
