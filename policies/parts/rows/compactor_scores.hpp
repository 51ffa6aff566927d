#pragma once
/// Both parts of Compactor's score (Chari, Van Durme, arXiv 2507.08143), as kvpress has them.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::policy {

/// A stretch of rows of a prompt: [first, end).
struct RowRange {
  std::size_t first = 0, end = 0;
  std::size_t size() const { return end - first; }
};

/// How keys before rotation point away from each other: less their mean, multiplied with `sketch` Gaussian
/// directions of length 1 / sqrt(sketch) (0: as they are), their leverage with a ridge of 0.01. Needs keys
/// and positions. [rows]
std::vector<double> key_leverages(const Prompt& prompt, RowRange rows, std::size_t sketch,
                                  std::uint64_t seed);

/// What the rows of chunks give to the chunk's keys, later ones too: softmax of q k times `scale`, sum over
/// rows, mean over `group` query heads, times the length of the value, pooled. [rows]
std::vector<double> non_causal_attention(const Prompt& prompt, RowRange rows, int group, std::size_t chunk,
                                         double scale, const Pooling& pooling);

// How far a row points away from all others: statistical leverage.

/// Returns x (X'X + ridge I)^-1 x' of every row x of X, row-major [n, dim], by a Cholesky factor; ridge > 0.
std::vector<double> leverages(std::span<const double> rows, std::size_t dim, double ridge);

}  // namespace kvsim::policy
