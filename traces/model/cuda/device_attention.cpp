#include "traces/model/cuda/device_attention.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace kvsim::model::cuda {
namespace {

constexpr std::uint64_t kPitchMultiple = 8;  // elements; rows of bf16 are aligned to 16 bytes, as tensor
                                             // cores prefer
constexpr std::uint64_t kAlignment = 256;    // bytes; as the device aligns what it allocates
constexpr std::uint64_t kMostPitch = (std::uint64_t{1} << 31) - 1;  // bytes from head to head that a copy of
                                                                    // rows can skip

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Where the parts of a block lie in the workspace, in bytes from its start.
template <class T>
struct Parts {
  /// `rows` are the queries of all heads, one after the other.
  Parts(std::uint64_t rows, std::uint64_t dim, std::uint64_t pitch) {
    const auto place = [this](std::uint64_t bytes) {
      const std::uint64_t at = end;
      end += rounded_up(bytes, kAlignment);
      return at;
    };
    queries = place(rows * dim * sizeof(T));
    attended = place(rows * dim * sizeof(T));
    scores = place(rows * pitch * sizeof(float));
    if (!std::is_same_v<T, float>) rounded = place(rows * pitch * sizeof(T));
  }
  std::uint64_t queries = 0, attended = 0;  // [heads, queries, dim]
  std::uint64_t scores = 0, rounded = 0;    // [heads, queries, pitch], in float and rounded to T
  std::uint64_t end = 0;
};

/// The shape of the scores of queries [first, first + rows) of the n.
template <class T>
ScoreBlock block_of(const DeviceAttentionInput<T>& input, std::uint64_t first, std::uint64_t rows) {
  ScoreBlock block;
  block.heads = input.heads;
  block.queries = rows;
  block.first_query = input.past + first;
  block.window = input.window;
  const std::uint64_t seen_from_here = block.first_query + 1;
  if (input.window >= 0 && seen_from_here > static_cast<std::uint64_t>(input.window))
    block.first_key = seen_from_here - static_cast<std::uint64_t>(input.window);
  block.keys = block.first_query + rows - block.first_key;
  block.pitch = rounded_up(block.keys, kPitchMultiple);
  return block;
}

template <class T>
Parts<T> parts_of(const ScoreBlock& block, std::uint64_t dim) {
  return Parts<T>(block.heads * block.queries, dim, block.pitch);
}

/// The largest block of queries from `first` on, before `end`, that fits into the workspace; at least one
/// query.
template <class T>
ScoreBlock fitting_block(const DeviceAttentionInput<T>& input, std::uint64_t first, std::uint64_t end,
                         std::uint64_t workspace) {
  std::uint64_t rows = std::min(DeviceAttention<T>::kMostQueries, end - first);
  ScoreBlock block = block_of(input, first, rows);
  const auto fits = [&] {
    return parts_of<T>(block, input.dim).end <= workspace && rows * block.pitch * sizeof(float) <= kMostPitch;
  };
  while (rows > 1 && !fits()) {
    rows = (rows + 1) / 2;
    block = block_of(input, first, rows);
  }
  return block;
}

}  // namespace

template <class T>
std::uint64_t DeviceAttention<T>::bytes_of_block(std::uint32_t heads, std::uint32_t dim,
                                                 std::uint64_t queries, std::uint64_t longest) {
  return Parts<T>(heads * queries, dim, rounded_up(longest, kPitchMultiple)).end;
}

template <class T>
DeviceAttention<T>::DeviceAttention(std::uint32_t heads, std::uint32_t dim, std::uint64_t longest,
                                    std::uint64_t workspace)
    : workspace_(std::max(workspace, bytes_of_block(heads, dim, 1, longest)), "the scores of attention") {}

template <class T>
void DeviceAttention<T>::attend(MatrixProduct& product, const Stream& stream,
                                const DeviceAttentionInput<T>& input, T* out, std::uint64_t first_observed,
                                const RowsObserver& observe, const ColumnSums& columns) {
  const std::uint64_t dim = input.dim, group = input.heads / input.kv_heads;
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));

  for (std::uint64_t first = 0; first < input.n;) {
    const bool observed = first >= first_observed;
    const std::uint64_t end = observed ? input.n : std::min(input.n, first_observed);
    const ScoreBlock block = fitting_block(input, first, end, workspace_.size());
    const Parts<T> parts = parts_of<T>(block, dim);
    const auto part = [&](std::uint64_t at) { return reinterpret_cast<T*>(workspace_.data() + at); };

    // The queries of a group share a KV head. With the block's queries in the order [heads, queries, dim]
    // they are the rows of one product with it. A block of all n queries has that order already.
    const T* q = input.q;
    if (block.queries < input.n) {
      const std::uint64_t row = dim * sizeof(T);
      copy_rows_on_device(part(parts.queries), block.queries * row, input.q + first * dim, input.n * row,
                          block.queries * row, input.heads, stream);
      q = part(parts.queries);
    }

    typename MatrixProduct::Batch<T, float> scores;
    scores.x = q;
    scores.y = input.k + block.first_key * dim;
    scores.out = reinterpret_cast<float*>(workspace_.data() + parts.scores);
    scores.rows = group * block.queries;
    scores.inner = scores.x_pitch = scores.y_pitch = dim;
    scores.columns = block.keys;
    scores.out_pitch = block.pitch;
    scores.x_batch = scores.rows * dim;
    scores.y_batch = input.capacity * dim;
    scores.out_batch = scores.rows * block.pitch;
    scores.batch = input.kv_heads;
    product.times_transposed(scores);

    float* const p = scores.out;
    T* const rounded = std::is_same_v<T, float> ? nullptr : part(parts.rounded);
    softmax(block, scale, p, rounded, stream.get());
    if (columns.sum != nullptr)
      add_columns(block, p, columns.capacity, columns.sum, columns.sum_squares, stream.get());

    // A single query's [heads, 1, dim] is already a row of out.
    T* const to = out + first * input.heads * dim;
    typename MatrixProduct::Batch<T, T> values;
    if constexpr (std::is_same_v<T, float>) {
      values.x = p;
    } else {
      values.x = rounded;
    }
    values.y = input.v + block.first_key * dim;
    values.out = block.queries == 1 ? to : part(parts.attended);
    values.rows = scores.rows;
    values.inner = block.keys;
    values.columns = values.y_pitch = values.out_pitch = dim;
    values.x_pitch = block.pitch;
    values.x_batch = scores.out_batch;
    values.y_batch = scores.y_batch;
    values.out_batch = scores.x_batch;
    values.batch = input.kv_heads;
    product.times(values);
    if (block.queries > 1)
      merge_heads<T>(values.out, input.heads, block.queries, input.dim, to, stream.get());

    if (observed) observe({block.first_query, block.queries, block.first_key, block.keys, block.pitch, p});
    first += block.queries;
  }
}

template class DeviceAttention<float>;
template class DeviceAttention<Bf16>;

}  // namespace kvsim::model::cuda
