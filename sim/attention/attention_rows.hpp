#pragma once
/// Computes exact attention rows from recorded queries and keys: the one piece of arithmetic that every cell
/// shares.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "sim/attention/key_panels.hpp"
#include "sim/base/matrix_view.hpp"
#include "traces/format/header.hpp"

namespace kvsim::sim {

/// The logit of a query head's sink (trace::Model::sink()) where there is none: it takes nothing.
inline constexpr float kNoSink = -std::numeric_limits<float>::infinity();

struct AttentionShape {
  double scale = 1;  ///< factor on q.k
  /// Sliding window W of the layer, -1: none. Query t sees key j iff t - W < j <= t.
  std::ptrdiff_t window = -1;
  double cap = 0;  ///< of logits, as cap_logits() takes it
  float sink = kNoSink;
  bool chunked = false;  ///< windows are chunks: trace::Model::chunked

  /// The first key that a query sees.
  std::size_t first_seen(std::size_t query) const {
    if (window < 0) return 0;
    const auto w = static_cast<std::size_t>(window);
    return chunked ? query - query % w : query + 1 - std::min(query + 1, w);
  }
};
AttentionShape attention_shape(const trace::Model& model, std::uint32_t layer, std::size_t query_head);

/// Computes the rows of queries first_query .. first_query + q.rows - 1 of one head over keys 0 ..
/// first_query + q.rows - 1: out(i, j) = softmax over visible j of scale * q_i . k_j, capped, in float; 0
/// where key j is not visible. With a sink a row adds up to 1 less its share. `keys` has at least first_query
/// + q.rows of them; `out` is row-major with `stride` >= that many columns. The bits of a row do not depend
/// on which rows are computed with it.
void attention_rows(const AttentionShape& shape, MatrixView q, std::size_t first_query, const KeyPanels& keys,
                    float* out, std::size_t stride);

/// row[i] = exp(row[i] - max) / sum of the same, in which the sink's logit takes part; returns the sink's
/// share. The bits depend on the values alone, never on the address.
float softmax(float* row, std::size_t n, float sink = kNoSink);

/// The share of the sink in a row of a model with sinks: what the keys leave of 1.
double sink_share(std::span<const float> row);

/// out [a.rows, b.cols] = a * b, row-major and dense.
void multiply(MatrixView a, MatrixView b, float* out);

/// out [a.cols, a.rows] = transpose(a), row-major and dense.
void transpose(MatrixView a, float* out);

}  // namespace kvsim::sim
