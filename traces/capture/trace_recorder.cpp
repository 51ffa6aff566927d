#include "traces/capture/trace_recorder.hpp"

#include <algorithm>

namespace kvsim::capture {

TraceRecorder::TraceRecorder(trace::Writer& writer, const Progress& progress, std::uint32_t query_heads,
                             Choice choice)
    : writer_(writer), progress_(progress), query_heads_(query_heads), choice_(std::move(choice)) {}

void TraceRecorder::on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                               const Elements& k, const Elements& v) {
  progress_.check();
  writer_.append(trace::Tensor::key, layer, n, k);
  writer_.append(trace::Tensor::value, layer, n, v);
  const std::vector<std::uint64_t> rows = chosen_rows(first, n);
  if (rows.empty()) return;
  writer_.append(trace::Tensor::query, layer, rows.size(), rows.size() == n ? q : gathered(q, n, rows));
}

void TraceRecorder::on_attention(std::uint32_t layer, std::uint64_t, std::uint64_t first_key,
                                 std::uint64_t n_keys, std::span<const float> p) {
  writer_.append_attention(layer, first_key, n_keys, p);
}

/// The tokens whose queries are stored among the n from position `first` on, counted from `first`.
std::vector<std::uint64_t> TraceRecorder::chosen_rows(std::uint64_t first, std::uint64_t n) const {
  std::vector<std::uint64_t> rows;
  const std::vector<std::uint64_t>& chosen = choice_.queries;
  for (auto at = std::lower_bound(chosen.begin(), chosen.end(), first); at != chosen.end() && *at < first + n;
       ++at)
    rows.push_back(*at - first);
  for (std::uint64_t position = std::max(first, choice_.prompt); position < first + n; ++position)
    rows.push_back(position - first);
  return rows;
}

/// The selected `rows` out of n rows of every query head.
Elements TraceRecorder::gathered(const Elements& q, std::uint64_t n, const std::vector<std::uint64_t>& rows) {
  const std::uint64_t dim = q.size() / (query_heads_ * n);
  const std::uint64_t row_bytes = dim * elem_bytes(q.elem());
  rows_.resize(query_heads_ * rows.size() * row_bytes);
  std::byte* to = rows_.data();
  for (std::uint64_t head = 0; head < query_heads_; ++head)
    for (const std::uint64_t row : rows) {
      q.subspan((head * n + row) * dim, dim).store(q.elem(), to);
      to += row_bytes;
    }
  return {q.elem(), rows_.data(), query_heads_ * rows.size() * dim};
}

}  // namespace kvsim::capture
