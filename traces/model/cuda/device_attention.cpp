#include "traces/model/cuda/device_attention.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace kvsim::model::cuda {
namespace {

constexpr std::uint64_t kMostQueries = 256;
constexpr std::uint64_t kPitchMultiple = 8;  // elements; rows of bf16 are aligned to 16 bytes, as tensor
                                             // cores prefer

/// Bytes per score: the score, and its probability rounded to T for the product with V.
template <class T>
constexpr std::uint64_t kScoreBytes = sizeof(float) + (std::is_same_v<T, float> ? 0 : sizeof(T));

std::uint64_t padded(std::uint64_t keys) {
  return (keys + kPitchMultiple - 1) / kPitchMultiple * kPitchMultiple;
}

/// The shape of the scores of queries [first, first + rows) of the n.
template <class T>
ScoreBlock block_of(const DeviceAttentionInput<T>& input, std::uint64_t first, std::uint64_t rows) {
  ScoreBlock block;
  block.queries = rows;
  block.first_query = input.past + first;
  block.window = input.window;
  const std::uint64_t seen_from_here = block.first_query + 1;
  if (input.window >= 0 && seen_from_here > static_cast<std::uint64_t>(input.window))
    block.first_key = seen_from_here - static_cast<std::uint64_t>(input.window);
  block.keys = block.first_query + rows - block.first_key;
  block.pitch = padded(block.keys);
  return block;
}

/// The largest block of queries from `first` on, before `end`, that fits into the workspace; at least one
/// query.
template <class T>
ScoreBlock fitting_block(const DeviceAttentionInput<T>& input, std::uint64_t first, std::uint64_t end,
                         std::uint32_t heads, std::uint64_t workspace) {
  std::uint64_t rows = std::min(kMostQueries, end - first);
  ScoreBlock block = block_of(input, first, rows);
  while (rows > 1 && heads * rows * block.pitch * kScoreBytes < T >> workspace) {
    rows = (rows + 1) / 2;
    block = block_of(input, first, rows);
  }
  block.heads = heads;
  return block;
}

}  // namespace

std::uint64_t DeviceAttention::bytes_of_query(std::uint32_t heads, std::uint64_t longest) {
  return heads * padded(longest) * kScoreBytes<Bf16>;
}

DeviceAttention::DeviceAttention(std::uint32_t heads, std::uint64_t longest, std::uint64_t workspace)
    : workspace_(std::max(workspace, bytes_of_query(heads, longest)), "the scores of attention") {}

template <class T>
void DeviceAttention::attend(MatrixProduct& product, const Stream& stream,
                             const DeviceAttentionInput<T>& input, T* out, std::uint64_t first_observed,
                             const RowsObserver& observe, const ColumnSums& columns) {
  const std::uint64_t dim = input.dim;
  const std::uint32_t group = input.heads / input.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));

  // Attends `heads` heads from `first_head` on, which share `kv_heads` KV heads; writes their probabilities
  // to p.
  const auto attend_heads = [&](const ScoreBlock& block, std::uint32_t first_head, std::uint32_t heads,
                                float* p, T* rounded) {
    const std::uint64_t first = block.first_query - input.past;
    const std::uint64_t of_head = block.queries * block.pitch;
    const std::uint64_t kv_head = first_head / group, kv_heads = heads / group;
    const std::uint64_t kv_offset = (kv_head * input.capacity + block.first_key) * dim;
    // For a single token, the queries of a group are contiguous and form the rows of one product per KV head.
    // For several tokens there is one product per head, all with the same KV head.
    const bool single = input.n == 1;

    typename MatrixProduct::Batch<T, float> scores;
    scores.x = input.q + (first_head * input.n + first) * dim;
    scores.y = input.k + kv_offset;
    scores.out = p;
    scores.rows = single ? group : block.queries;
    scores.inner = scores.x_pitch = scores.y_pitch = dim;
    scores.columns = block.keys;
    scores.out_pitch = block.pitch;
    scores.x_batch = single ? group * dim : input.n * dim;
    scores.y_batch = single ? input.capacity * dim : 0;
    scores.out_batch = single ? group * of_head : of_head;
    scores.batch = single ? kv_heads : heads;
    product.times_transposed(scores);

    ScoreBlock these = block;
    these.heads = heads;
    softmax(these, scale, p, rounded, stream.get());
    if (columns.sum != nullptr)
      add_columns(these, p, columns.capacity, columns.sum + first_head * columns.capacity,
                  columns.sum_squares + first_head * columns.capacity, stream.get());

    typename MatrixProduct::Batch<T, T> values;
    if constexpr (std::is_same_v<T, float>) {
      values.x = p;
    } else {
      values.x = rounded;
    }
    values.y = input.v + kv_offset;
    values.out = out + (first * input.heads + first_head) * dim;
    values.rows = scores.rows;
    values.inner = block.keys;
    values.columns = values.y_pitch = dim;
    values.x_pitch = block.pitch;
    values.out_pitch = single ? dim : input.heads * dim;
    values.x_batch = scores.out_batch;
    values.y_batch = scores.y_batch;
    values.out_batch = single ? group * dim : dim;
    values.batch = scores.batch;
    product.times(values);
  };

  auto* const p = reinterpret_cast<float*>(workspace_.data());
  const auto attend_block = [&](const ScoreBlock& block, bool all_heads) {
    const std::uint64_t of_head = block.queries * block.pitch;
    T* const rounded = std::is_same_v<T, float> ? nullptr : reinterpret_cast<T*>(p + block.heads * of_head);
    if (input.n == 1) {
      attend_heads(block, 0, input.heads, p, rounded);
      return;
    }
    for (std::uint32_t head = 0; head < input.heads; head += group) {
      // Observed probabilities are kept until those of all heads are complete; others are overwritten by the
      // next group.
      attend_heads(block, head, group, all_heads ? p + head * of_head : p, rounded);
    }
  };

  for (std::uint64_t first = 0; first < input.n;) {
    const bool observed = first >= first_observed;
    const bool all_heads = observed || input.n == 1;
    const std::uint64_t end = observed ? input.n : std::min(input.n, first_observed);
    const ScoreBlock block =
        fitting_block(input, first, end, all_heads ? input.heads : group, workspace_.size());
    attend_block(block, all_heads);
    if (observed) observe({block.first_query, block.queries, block.first_key, block.keys, block.pitch, p});
    first += block.queries;
  }
}

template void DeviceAttention::attend(MatrixProduct&, const Stream&, const DeviceAttentionInput<float>&,
                                      float*, std::uint64_t, const RowsObserver&, const ColumnSums&);
template void DeviceAttention::attend(MatrixProduct&, const Stream&, const DeviceAttentionInput<Bf16>&, Bf16*,
                                      std::uint64_t, const RowsObserver&, const ColumnSums&);

}  // namespace kvsim::model::cuda
