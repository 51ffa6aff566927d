#include "sim/attention/query_reader.hpp"

#include <algorithm>

#include "sim/attention/attention_rows.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::sim {
namespace {

std::size_t chunk_rows(const trace::Sequence& sequence) {
  return trace::schema::chunk_rows(sequence.model().head_dim, sequence.source().header().elem);
}

}  // namespace

QueryReader::QueryReader(const GroupTensors& tensors)
    : tensors_(&tensors), first_row_(trace::first_row(tensors.sequence())) {}

void QueryReader::read(std::size_t query_head, std::size_t first, std::size_t n, std::span<float> out) {
  const trace::Sequence& sequence = tensors_->sequence();
  const std::size_t dim = sequence.model().head_dim, chunk = chunk_rows(sequence);
  if (pieces_.size() <= query_head) pieces_.resize(query_head + 1);
  auto& [begin, rows] = pieces_[query_head];
  if (first < begin || first + n > begin + rows.size() / dim) {
    const std::size_t end = std::min(std::max(first + n, (first / chunk + 1) * chunk), sequence.length());
    begin = first;
    rows.resize((end - first) * dim);
    tensors_->read_queries(query_head, first, end - first, rows);
  }
  std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>((first - begin) * dim), n * dim, out.begin());
}

void QueryReader::rows(std::size_t query_head, std::size_t first, std::size_t n, std::span<float> queries,
                       float* out, std::size_t stride) {
  const trace::Sequence& sequence = tensors_->sequence();
  const trace::Model& model = sequence.model();
  const std::size_t dim = model.head_dim;
  const auto within = [&](std::size_t position) { return std::clamp(position, first, first + n) - first; };
  const std::size_t unasked = within(sequence.first_query()), lost = within(first_row_);
  if (unasked > 0) std::fill_n(queries.begin(), unasked * dim, 0.0F);
  if (unasked < n) read(query_head, first + unasked, n - unasked, queries.subspan(unasked * dim));
  if (unasked < n || lost > 0)
    attention_rows(attention_shape(model, tensors_->group().layer, tensors_->model_head(query_head)),
                   {queries.data(), n, dim, dim}, first, tensors_->key_panels(query_head / model.group()),
                   out, stride);
  if (lost < unasked)
    tensors_->read_rows(query_head, first + lost, unasked - lost, out + lost * stride, stride);
}

std::uint64_t QueryReader::bytes(const trace::Sequence& sequence, std::size_t heads) {
  return heads * std::min<std::uint64_t>(chunk_rows(sequence), sequence.length()) *
         sequence.model().head_dim * sizeof(float);
}

}  // namespace kvsim::sim
