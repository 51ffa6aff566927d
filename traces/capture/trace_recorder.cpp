#include "traces/capture/trace_recorder.hpp"

#include <algorithm>

namespace kvsim::capture {

TraceRecorder::TraceRecorder(trace::Writer& writer, const Progress& progress, std::uint32_t query_heads,
                             std::uint64_t first_query, std::uint64_t first_attention)
    : writer_(writer),
      progress_(progress),
      query_heads_(query_heads),
      first_query_(first_query),
      first_attention_(first_attention) {}

void TraceRecorder::on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                               const Elements& k, const Elements& v) {
  progress_.check();
  writer_.append(trace::Tensor::key, layer, n, k);
  writer_.append(trace::Tensor::value, layer, n, v);
  const std::uint64_t skipped = first_query_ <= first ? 0 : std::min(n, first_query_ - first);
  if (skipped == 0) {
    writer_.append(trace::Tensor::query, layer, n, q);
  } else if (skipped < n) {
    writer_.append(trace::Tensor::query, layer, n - skipped, last_rows(q, n, n - skipped));
  }
}

void TraceRecorder::on_attention(std::uint32_t layer, std::uint64_t, std::uint64_t first_key,
                                 std::uint64_t n_keys, std::span<const float> p) {
  writer_.append_attention(layer, first_key, n_keys, p);
}

/// The last `kept` of n rows of every query head.
Elements TraceRecorder::last_rows(const Elements& q, std::uint64_t n, std::uint64_t kept) {
  const std::uint64_t dim = q.size() / (query_heads_ * n);
  const std::uint64_t head_bytes = kept * dim * elem_bytes(q.elem());
  rows_.resize(query_heads_ * head_bytes);
  for (std::uint64_t head = 0; head < query_heads_; ++head)
    q.subspan((head * n + n - kept) * dim, kept * dim).store(q.elem(), rows_.data() + head * head_bytes);
  return {q.elem(), rows_.data(), query_heads_ * kept * dim};
}

}  // namespace kvsim::capture
