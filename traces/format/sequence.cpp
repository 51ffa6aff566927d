#include "traces/format/sequence.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"

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

Sequence::Sequence(const Source& source, std::size_t index, const Cut& cut) : source_(&source), cut_(cut) {
  const Header& header = source.header();
  if (index >= header.sequence_leaf.size())
    input_error("sequence " + std::to_string(index) + " does not exist: the trace has " +
                    std::to_string(header.sequence_leaf.size()),
                source.name() + ":/sequences/leaf");
  for (const Segment* segment : path_to(header, header.sequence_leaf[index])) {
    const bool generated = segment->phase != Phase::prompt;
    spans_.push_back({length_, segment->begin, segment->count, generated});
    length_ += segment->count;
    if (!generated) prompt_ = length_;
  }
  if (prompt_ == 0) input_error("the sequence has no prompt", source.name() + ":/segments");
  check_positions();
  apply_cut();

  first_query_ = holds_queries(header) ? 0 : length_;
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

void Sequence::apply_cut() {
  recorded_prompt_ = prompt_;
  if (cut_.at == Cut::At::question) prompt_ = question_begin();
  if (cut_.at == Cut::At::position) {
    if (cut_.position >= length_)
      usage_error("is not inside the sequence, which has " + std::to_string(length_) + " tokens",
                  "cut " + cut_.text() + " of " + source_->name(), "At least one token must follow the cut.");
    prompt_ = cut_.position;
  }
  for (const Span& span : spans_)
    if (span.generated && span.position < prompt_) answered_ += std::min(span.count, prompt_ - span.position);
}

std::uint64_t Sequence::first_request() const {
  const auto generated =
      std::find_if(spans_.begin(), spans_.end(), [](const Span& span) { return span.generated; });
  return generated == spans_.end() ? length_ : generated->position;
}

std::uint64_t Sequence::question_begin() const {
  const std::string where = "cut question of " + source_->name();
  if ((flags_known() & kFlagContext) == 0)
    usage_error("the trace does not say which tokens are context", where,
                "Traces of workloads do; kvsim trace mark says it of others. Or give the cut as a number.");
  const std::uint64_t end = first_request();
  std::uint64_t begin = end;
  while (begin > 0 && (flags(begin - 1) & kFlagContext) == 0) --begin;
  if (begin == 0) usage_error("no token of the first request is context", where);
  if (begin == end) usage_error("nothing follows the context in the first request", where);
  return begin;
}

std::uint64_t Sequence::instruction_before() const {
  if ((flags_known() & kFlagContext) == 0) return 0;
  std::uint64_t others = 0;
  for (std::uint64_t position = 0; position < prompt_; ++position) {
    if (flags(position) & kFlagContext) return others;
    others += flags(position) & kFlagSpecial ? 0 : 1;
  }
  return 0;
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

float Sequence::surprise(std::uint64_t position) const {
  const std::vector<float>& logprob = source_->header().token_logprob;
  return logprob.empty() ? std::numeric_limits<float>::quiet_NaN() : -logprob[token(position)];
}

std::uint64_t Sequence::held_queries(std::uint64_t end) const {
  const std::vector<std::uint64_t>& stored = source_->header().query_token;
  if (stored.empty()) return first_query_ == 0 ? end : 0;
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
  // Tokens ascend along a path, so its prompt is the first tokens of the file if its last prompt token is
  // number P - 1.
  return source_->has_column_statistics() && source_->header().counted_tokens == prompt_ &&
         token(prompt_ - 1) == prompt_ - 1;
}

std::vector<Sequence::Run> Sequence::runs(Tensor tensor, std::uint64_t first, std::uint64_t n) const {
  const std::vector<std::uint64_t>& stored = source_->header().query_token;
  std::vector<Run> out;
  for (const Span& span : spans_) {
    const std::uint64_t begin = std::max(first, span.position),
                        end = std::min(first + n, span.position + span.count);
    if (begin >= end) continue;
    std::uint64_t row = span.token + (begin - span.position);
    // From first_query() on every token of a span has a row, so their rows are consecutive.
    if (tensor == Tensor::query && !stored.empty())
      row = static_cast<std::uint64_t>(std::lower_bound(stored.begin(), stored.end(), row) - stored.begin());
    out.push_back({begin, row, end - begin});
  }
  return out;
}

void Sequence::read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first,
                    std::uint64_t n, std::span<float> out) const {
  const std::size_t dim = schema::tensor_dim(model(), tensor);
  if (first > length_ || n > length_ - first || out.size() != n * dim)
    bug("read beyond the sequence", source_->name());
  if (tensor == Tensor::query && n > 0 && first < first_query_)
    input_error("queries before position " + std::to_string(first_query_) + " are not stored",
                source_->name(), "Capture with --queries all, or use policies that need fewer rows.");
  for (const Run& run : runs(tensor, first, n))
    source_->read(tensor, layer, head, run.row, run.count,
                  out.subspan((run.position - first) * dim, run.count * dim));
}

void Sequence::will_read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first,
                         std::uint64_t n) const {
  if (tensor == Tensor::query && first < first_query_) {
    n -= std::min(n, first_query_ - first);
    first = first_query_;
  }
  for (const Run& run : runs(tensor, first, n)) source_->will_read(tensor, layer, head, run.row, run.count);
}

}  // namespace kvsim::trace
