#include "traces/requests/generated_blocks.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "traces/requests/trace_builder.hpp"

namespace kvsim::requests {
namespace {

std::uint64_t whole_blocks(const RequestTrace& trace, std::uint64_t tokens) {
  return block_count(tokens, trace.block_tokens, Tail::missing);
}

/// Whether `next` continues `request`, and then gives it its generated blocks.
void take_from_next(RequestTrace& trace, Request& request, const Request& next) {
  const std::uint64_t own = whole_blocks(trace, request.prompt_tokens);
  const std::uint64_t known =
      std::min(whole_blocks(trace, std::uint64_t{request.prompt_tokens} + request.generated_tokens),
               whole_blocks(trace, next.prompt_tokens));
  if (request.n_final_blocks > 0 || known < own) return;
  const std::span<const BlockId> mine = trace.prompt_blocks(request), theirs = trace.prompt_blocks(next);
  if (!std::equal(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(own), theirs.begin())) return;
  request.first_final_block = next.first_block;
  request.n_final_blocks = static_cast<std::uint32_t>(known);
}

/// For every prefix of whole blocks, the request that ended there last.
class Ends {
 public:
  explicit Ends(const RequestTrace& trace) : trace_(trace), numbers_(trace.hashing) {}

  /// The latest earlier request whose whole blocks are the longest beginning of this one's, or kNone; then
  /// remembers this one.
  std::uint32_t parent_of(std::uint32_t number) {
    const Request& request = trace_.requests[number];
    const auto ids = trace_.prompt_blocks(request).first(whole_blocks(trace_, request.prompt_tokens));
    std::uint32_t parent = kNone, node = kNone;
    for (const BlockId id : ids) {
      node = numbers_.number(node, id);
      if (node == ends_.size()) ends_.push_back(kNone);
      if (ends_[node] != kNone) parent = ends_[node];
    }
    if (!ids.empty()) ends_[node] = number;
    return parent;
  }

 private:
  const RequestTrace& trace_;
  PrefixNumbers numbers_;
  std::vector<std::uint32_t> ends_;
};

}  // namespace

void infer_generated(RequestTrace& trace) {
  if (!trace.has_blocks()) usage_error("cannot be inferred from a trace without blocks", "generated blocks");
  if (trace.generated == Generated::given) return;
  trace.generated = Generated::inferred;
  const bool has_turns = std::any_of(trace.requests.begin(), trace.requests.end(),
                                     [](const Request& request) { return request.parent != kNone; });
  Ends ends(trace);
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
    const std::uint32_t parent = has_turns ? trace.requests[i].parent : ends.parent_of(i);
    if (parent != kNone) take_from_next(trace, trace.requests[parent], trace.requests[i]);
  }
}

void forget_generated(RequestTrace& trace) {
  trace.generated = Generated::none;
  for (Request& request : trace.requests) request.first_final_block = request.n_final_blocks = 0;
}

void forget_tails(RequestTrace& trace) {
  trace.tail = Tail::missing;
  const auto cut = [&](std::uint32_t& blocks, std::uint64_t tokens) {
    blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, whole_blocks(trace, tokens)));
  };
  for (Request& request : trace.requests) {
    cut(request.n_blocks, request.prompt_tokens);
    cut(request.n_final_blocks, std::uint64_t{request.prompt_tokens} + request.generated_tokens);
  }
}

}  // namespace kvsim::requests
