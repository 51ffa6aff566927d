#include "sim/attention/query_reader.hpp"

#include <algorithm>

#include "traces/format/schema.hpp"

namespace kvsim::sim {
namespace {

std::size_t chunk_rows(const trace::Sequence& sequence) {
  return trace::schema::chunk_rows(sequence.model().head_dim, sequence.source().header().elem);
}

}  // namespace

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

std::uint64_t QueryReader::bytes(const trace::Sequence& sequence, std::size_t heads) {
  return heads * std::min<std::uint64_t>(chunk_rows(sequence), sequence.length()) *
         sequence.model().head_dim * sizeof(float);
}

}  // namespace kvsim::sim
