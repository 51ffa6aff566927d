#pragma once
/// Multiplies by a checkpoint's matrices, in float.
#include <cstdint>
#include <initializer_list>
#include <span>

#include "sim/base/workers.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

/// y [n, out] = x [n, in] W^T + b. 16-bit weights are read in place and widened in registers (few tokens) or
/// in panels that stay in cache (many tokens); many tokens are multiplied by bf16 weights on matrix tiles
/// where the processor has them (tile_product.hpp). The number of tokens affects a token's outputs only
/// through this choice. Packed weights are widened in registers too, and their sums have one order for any
/// number of tokens, that of many tokens.
void apply_linear(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y);

/// A matrix, and where its product goes.
struct Product {
  const Linear* linear;
  float* y;
  const float* x = nullptr;  ///< what it multiplies; null: what the call says
};
/// The same of several matrices. With few tokens threads share them all at once: they would wait for each
/// other as long as a small product takes, and memory for the first weights of each matrix.
void apply_linear(Workers& workers, std::initializer_list<Product> products, const float* x, std::uint64_t n);
void apply_linear(Workers& workers, std::span<const Product> products, const float* x, std::uint64_t n);

/// The same with the kernel of many tokens for every n: a token's outputs are the same bits whatever else is
/// in the batch.
void apply_linear_alike(Workers& workers, const Linear& linear, const float* x, std::uint64_t n, float* y);

}  // namespace kvsim::model::cpu
