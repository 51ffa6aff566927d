#include "traces/requests/trace_builder.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::requests {
namespace {

constexpr std::int64_t kMostSeconds = std::int64_t{1} << 33;  ///< Unix time until the year 2242
constexpr std::uint64_t kMostBlockTokens = std::uint64_t{1} << 24;

std::string blocks_text(std::uint64_t blocks, std::uint64_t tokens) {
  return std::to_string(blocks) + (blocks == 1 ? " block of " : " blocks of ") + std::to_string(tokens) +
         " tokens";
}

std::uint32_t checked_tokens(std::uint64_t tokens, const char* of, const std::string& where) {
  if (tokens > kMostTokens)
    input_error(std::to_string(tokens) + " " + of + " tokens are more than " + std::to_string(kMostTokens),
                where);
  return static_cast<std::uint32_t>(tokens);
}

}  // namespace

TraceBuilder::TraceBuilder(std::string file, std::string format, const ReadOptions& options,
                           const FormatDefaults& defaults)
    : file_(std::move(file)), options_(options), defaults_(defaults) {
  trace_.format = std::move(format);
  trace_.block_tokens = options.block_tokens > 0 ? options.block_tokens : defaults.block_tokens;
  trace_.hashing = options.hashing.value_or(defaults.hashing);
  trace_.tail = options.tail.value_or(defaults.tail);
  if (trace_.block_tokens > kMostBlockTokens)
    usage_error("blocks of more than " + std::to_string(kMostBlockTokens) + " tokens", "block tokens");
}

std::string TraceBuilder::where() const {
  return file_ + " line " + std::to_string(line_);
}

void TraceBuilder::declare_block_tokens(std::uint64_t tokens) {
  if (block_tokens_line_ > 0 || options_.block_tokens > 0 || !trace_.blocks.empty()) {
    if (tokens == trace_.block_tokens) return;
    const std::string other = block_tokens_line_ > 0 ? "line " + std::to_string(block_tokens_line_) + " says"
                              : options_.block_tokens > 0 ? "the option says"
                                                          : "the lines before have";
    input_error("blocks of " + std::to_string(tokens) + " tokens, where " + other + " " +
                    std::to_string(trace_.block_tokens),
                where(), "All blocks of a trace have one size.");
  }
  if (tokens == 0 || tokens > kMostBlockTokens)
    input_error("blocks of " + std::to_string(tokens) + " tokens", where(),
                "From 1 to " + std::to_string(kMostBlockTokens) + " are possible.");
  trace_.block_tokens = static_cast<std::uint32_t>(tokens);
  block_tokens_line_ = line_;
}

std::uint32_t TraceBuilder::number(Numbers& numbers, std::vector<std::string>& names, std::string_view name) {
  const auto [at, fresh] = numbers.try_emplace(std::string(name), static_cast<std::uint32_t>(names.size()));
  if (fresh) names.emplace_back(name);
  return at->second;
}

void TraceBuilder::check_time(const Request& request) {
  if (!std::isfinite(request.time_s) || std::abs(request.time_s) > kMostSeconds)
    input_error("has a time beyond " + std::to_string(kMostSeconds) + " seconds", where(),
                "Is its unit right?");
  if (request.time_s < 0) input_error("a time before the trace begins", where(), "Times are 0 or more.");
  if (request.after_parent) return;
  if (request.time_s < latest_ && defaults_.rising && !options_.sort)
    input_error("arrives before a request of an earlier line", where(),
                "Requests stand in the order of their times; kvsim requests convert --sort writes them so.");
  latest_ = std::max(latest_, request.time_s);
}

void TraceBuilder::check_blocks(std::uint64_t prompt_tokens, const std::vector<BlockId>* ids) {
  if (!trace_.requests.empty() && has_blocks_ != (ids != nullptr))
    input_error(has_blocks_ ? "has no ids of blocks, unlike the requests before"
                            : "has ids of blocks, unlike the requests before",
                where(), "All requests of a trace have them, or none.");
  has_blocks_ = ids != nullptr;
  if (ids == nullptr) return;
  const std::uint32_t size = trace_.block_tokens;
  if (size == 0)
    input_error("does not say how many tokens a block has", where(), "Say it: --block-tokens N.");
  const std::uint64_t whole = block_count(prompt_tokens, size, Tail::missing);
  const std::uint64_t all = block_count(prompt_tokens, size, Tail::partial);
  if (ids->size() != whole && ids->size() != all)
    input_error(std::to_string(prompt_tokens) + " tokens are " +
                    (whole == all ? "" : std::to_string(whole) + " or ") + blocks_text(all, size) +
                    ", but the line has " + std::to_string(ids->size()) + " ids",
                where(), "If blocks have another size, say it: --block-tokens N.");
  if (whole == all) return;
  const Tail tail = ids->size() == all ? Tail::partial : Tail::missing;
  const bool known = options_.tail.has_value() || tail_line_ > 0;
  if (known && tail != trace_.tail)
    input_error(
        std::string(tail == Tail::partial ? "has an id for the tokens behind its last whole block"
                                          : "has no id for the tokens behind its last whole block") +
            ", unlike " +
            (options_.tail ? std::string("what the option says") : "line " + std::to_string(tail_line_)),
        where());
  if (tail_line_ == 0) tail_line_ = line_;
  trace_.tail = tail;
}

void TraceBuilder::continue_session(Request& request, std::string_view name) {
  request.session = session(name);
  request.parent = request.session < last_.size() ? last_[request.session] : kNone;
  request.turn = request.parent == kNone ? 1 : trace_.requests[request.parent].turn + 1;
}

std::uint32_t TraceBuilder::add(Request request, std::uint64_t prompt_tokens, std::uint64_t generated_tokens,
                                const std::vector<BlockId>* ids) {
  if (prompt_tokens == 0)
    input_error("a request without a prompt", where(),
                "Nothing can be computed for it or found: leave the line out.");
  request.prompt_tokens = checked_tokens(prompt_tokens, "prompt", where());
  request.generated_tokens = checked_tokens(generated_tokens, "generated", where());
  if (trace_.requests.size() >= kNone) input_error("is one request more than 4,294,967,295", where());
  check_blocks(prompt_tokens, ids);
  check_time(request);
  request.line = line_;
  request.first_block = trace_.blocks.size();
  if (ids != nullptr) {
    request.n_blocks = static_cast<std::uint32_t>(ids->size());
    trace_.blocks.insert(trace_.blocks.end(), ids->begin(), ids->end());
  }
  if (request.session != kNone) {
    if (last_.size() <= request.session) last_.resize(request.session + 1, kNone);
    last_[request.session] = static_cast<std::uint32_t>(trace_.requests.size());
  }
  trace_.requests.push_back(request);
  return static_cast<std::uint32_t>(trace_.requests.size() - 1);
}

const std::vector<BlockId>& TraceBuilder::ids_of(std::span<const std::uint64_t> tokens) {
  ids_.clear();
  append_ids(tokens, trace_.block_tokens, trace_.hashing, trace_.tail, ids_);
  return ids_;
}

std::uint32_t TraceBuilder::add_tokens(const Request& request, std::vector<std::uint64_t>& prompt,
                                       std::uint64_t generated_tokens,
                                       const std::vector<std::uint64_t>* output) {
  const std::uint32_t number = add(request, prompt.size(), generated_tokens, &ids_of(prompt));
  if (output == nullptr) return number;
  prompt.insert(prompt.end(), output->begin(), output->end());
  Request& added = trace_.requests.back();
  const std::vector<BlockId>& ids = ids_of(prompt);
  added.first_final_block = trace_.blocks.size();
  added.n_final_blocks = static_cast<std::uint32_t>(ids.size());
  trace_.blocks.insert(trace_.blocks.end(), ids.begin(), ids.end());
  trace_.generated = Generated::given;
  return number;
}

/// Orders requests by time, those of equal times as they were; one that waits for its parent stays behind it.
void TraceBuilder::sort() {
  std::vector<Request>& requests = trace_.requests;
  std::vector<double> keys;
  keys.reserve(requests.size());
  for (const Request& request : requests)
    keys.push_back(request.after_parent ? keys[request.parent] : request.time_s);
  std::vector<std::uint32_t> place(requests.size());
  std::vector<Request> sorted;
  sorted.reserve(requests.size());
  for (const std::size_t from : least_first(keys)) {
    place[from] = static_cast<std::uint32_t>(sorted.size());
    sorted.push_back(requests[from]);
  }
  for (std::uint32_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].parent == kNone) continue;
    line_ = sorted[i].line;
    sorted[i].parent = place[sorted[i].parent];
    if (sorted[i].parent >= i) input_error("arrives before the request whose answer it continues", where());
  }
  requests = std::move(sorted);
}

RequestTrace TraceBuilder::finish() {
  if (trace_.requests.empty()) input_error("has no requests", file_);
  if (!has_blocks_) {
    if (options_.block_tokens > 0 || options_.tail || options_.hashing || options_.generated.has_value())
      usage_error("means nothing to a trace of format " + trace_.format + " without ids of blocks", file_,
                  "Options of blocks (their tokens, hash, tail, generated ones) need ids of blocks.");
    trace_.block_tokens = 0;
  }
  if (options_.sort || defaults_.by_end) sort();
  if (defaults_.from_first) {
    double first = latest_;
    for (const Request& request : trace_.requests)
      if (!request.after_parent) first = std::min(first, request.time_s);
    for (Request& request : trace_.requests)
      if (!request.after_parent) request.time_s -= first;
  }
  return std::move(trace_);
}

}  // namespace kvsim::requests
