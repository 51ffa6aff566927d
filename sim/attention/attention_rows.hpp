#pragma once
/// Computes exact attention rows from recorded queries and keys: the one piece of arithmetic that every cell
/// shares.
#include <cstddef>

#include "sim/attention/key_panels.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

struct AttentionShape {
  double scale = 1;  ///< factor on q.k
  /// Sliding window W of the layer, -1: none. Query t sees key j iff t - W < j <= t.
  std::ptrdiff_t window = -1;
  double cap = 0;  ///< of logits, as cap_logits() takes it
};

/// Computes the rows of queries first_query .. first_query + q.rows - 1 of one head over keys 0 ..
/// first_query + q.rows - 1: out(i, j) = softmax over visible j of scale * q_i . k_j, capped, in float; 0
/// where key j is not visible. `keys` has at least first_query + q.rows of them; `out` is row-major with
/// `stride` >= that many columns. The bits of a row do not depend on which rows are computed with it.
void attention_rows(const AttentionShape& shape, MatrixView q, std::size_t first_query, const KeyPanels& keys,
                    float* out, std::size_t stride);

/// row[i] = cap * tanh(row[i] / cap), nothing if cap is 0. The bits depend on the values alone.
void cap_logits(float* row, std::size_t n, double cap);

/// row[i] = exp(row[i] - max) / sum of the same. The bits depend on the values alone, never on the address.
void softmax(float* row, std::size_t n);

/// out [a.rows, b.cols] = a * b, row-major and dense.
void multiply(MatrixView a, MatrixView b, float* out);

/// out [a.cols, a.rows] = transpose(a), row-major and dense.
void transpose(MatrixView a, float* out);

}  // namespace kvsim::sim
