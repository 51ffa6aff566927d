#include "traces/sequence.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "traces/schema.hpp"

namespace kvsim::trace {
namespace {

/// Segments from the root to `leaf`.
std::vector<const Segment*> path_to(const Header& header, std::uint32_t leaf) {
  std::vector<const Segment*> path;
  for (std::int64_t s = leaf; s >= 0; s = header.segments[static_cast<std::size_t>(s)].parent)
    path.push_back(&header.segments[static_cast<std::size_t>(s)]);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

Sequence::Sequence(const Source& source, std::size_t index) : source_(&source) {
  const Header& header = source.header();
  if (index >= header.sequence_leaf.size())
    input_error("sequence " + std::to_string(index) + " does not exist: the trace has " +
                    std::to_string(header.sequence_leaf.size()),
                source.name() + ":/sequences/leaf");
  std::uint64_t generated = 0;
  for (const Segment* segment : path_to(header, header.sequence_leaf[index])) {
    spans_.push_back({length_, segment->begin, segment->count});
    length_ += segment->count;
    if (segment->phase != Phase::prompt) {
      generated += segment->count;
    } else {
      prompt_ = length_;
      answered_ = generated;
    }
  }
  if (prompt_ == 0) input_error("the sequence has no prompt", source.name() + ":/segments");
  check_positions();

  first_query_ = 0;
  if (header.query_token.empty()) return;
  for (first_query_ = length_; first_query_ > 0; --first_query_)
    if (!std::binary_search(header.query_token.begin(), header.query_token.end(), token(first_query_ - 1)))
      break;
}

void Sequence::check_positions() const {
  for (const Span& span : spans_) {
    for (std::uint64_t i = 0; i < span.count; ++i) {
      const std::int32_t stored = source_->header().token_position[span.token + i];
      if (static_cast<std::uint64_t>(stored) != span.position + i)
        input_error("is " + std::to_string(stored) + ", but the token is number " +
                        std::to_string(span.position + i) + " of its sequence",
                    source_->name() + ":/tokens/position[" + std::to_string(span.token + i) + "]",
                    "Replay needs positions 0, 1, 2, ... without gaps.");
    }
  }
}

std::uint64_t Sequence::token(std::uint64_t position) const {
  if (position >= length_)
    bug("position " + std::to_string(position) + " is beyond the sequence", source_->name());
  const auto span = std::prev(std::upper_bound(
      spans_.begin(), spans_.end(), position, [](std::uint64_t p, const Span& s) { return p < s.position; }));
  return span->token + (position - span->position);
}

std::uint32_t Sequence::flags(std::uint64_t position) const {
  return source_->header().token_flags[token(position)] & flags_known();
}

std::uint64_t Sequence::held_queries(std::uint64_t end) const {
  const std::vector<std::uint64_t>& stored = source_->header().query_token;
  if (stored.empty()) return end;
  std::uint64_t held = 0;
  for (const Span& span : spans_) {
    if (span.position >= end) break;
    const std::uint64_t count = std::min(span.count, end - span.position);
    held += static_cast<std::uint64_t>(std::lower_bound(stored.begin(), stored.end(), span.token + count) -
                                       std::lower_bound(stored.begin(), stored.end(), span.token));
  }
  return held;
}

bool Sequence::has_column_statistics() const {
  // Tokens ascend along a path: its prompt is the first tokens of the file iff its last one is.
  return source_->has_column_statistics() && source_->header().counted_tokens == prompt_ &&
         token(prompt_ - 1) == prompt_ - 1;
}

void Sequence::read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first,
                    std::uint64_t n, std::span<float> out) const {
  const std::size_t dim = schema::tensor_dim(model(), tensor);
  if (first > length_ || n > length_ - first || out.size() != n * dim)
    bug("read beyond the sequence", source_->name());
  if (tensor == Tensor::query && n > 0 && first < first_query_)
    input_error("queries before position " + std::to_string(first_query_) + " are not stored",
                source_->name(), "Capture with --queries all, or use policies that need fewer rows.");
  const std::vector<std::uint64_t>& stored = source_->header().query_token;
  for (const Span& span : spans_) {
    const std::uint64_t begin = std::max(first, span.position),
                        end = std::min(first + n, span.position + span.count);
    if (begin >= end) continue;
    std::uint64_t row = span.token + (begin - span.position);
    // From first_query() on every token of a span has a row, so their rows follow each other.
    if (tensor == Tensor::query && !stored.empty())
      row = static_cast<std::uint64_t>(std::lower_bound(stored.begin(), stored.end(), row) - stored.begin());
    source_->read(tensor, layer, head, row, end - begin,
                  out.subspan((begin - first) * dim, (end - begin) * dim));
  }
}

}  // namespace kvsim::trace
