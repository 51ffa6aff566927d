#include "traces/requests/like_requests.hpp"

#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "traces/requests/generated_blocks.hpp"
#include "traces/requests/trace_builder.hpp"

namespace kvsim::requests {
namespace {

/// Puts values into a random order.
template <class T>
void shuffle(std::vector<T>& values, std::uint64_t key) {
  for (std::size_t i = values.size(); i > 1; --i) {
    const auto other = static_cast<std::size_t>(uniform01(combine({key, i})) * static_cast<double>(i));
    std::swap(values[i - 1], values[other]);
  }
}

/// For every prefix, its number; and in how many prompts it is.
struct Prefixes {
  explicit Prefixes(const RequestTrace& trace) {
    PrefixNumbers numbers(trace.hashing);
    for (const Request& request : trace.requests) {
      std::uint32_t prefix = kNone;
      for (const BlockId id : trace.prompt_blocks(request)) {
        prefix = numbers.number(prefix, id);
        if (prefix == prompts.size()) prompts.push_back(0);
        ++prompts[prefix];
        path.push_back(prefix);
      }
    }
  }
  std::vector<std::uint32_t> path;     ///< of all prompts, one behind the other
  std::vector<std::uint32_t> prompts;  ///< that have the prefix
};

/// Deals the values of some requests out among them.
template <class Field>
void deal(std::vector<Request>& requests, const std::vector<std::uint32_t>& among, std::uint64_t key,
          const Field& field) {
  std::vector<std::uint32_t> values;
  values.reserve(among.size());
  for (const std::uint32_t i : among) values.push_back(field(requests[i]));
  shuffle(values, key);
  for (std::size_t k = 0; k < among.size(); ++k) field(requests[among[k]]) = values[k];
}

}  // namespace

RequestTrace like_requests(const RequestTrace& trace, std::uint64_t seed) {
  if (!trace.has_blocks())
    usage_error("a trace of format " + trace.format + " does not say which prompts share tokens", "--like");
  RequestTrace out = trace;
  forget_generated(out);
  out.format = "generated";
  out.hashing = Hashing::chained;
  const Prefixes prefixes(trace);
  const std::uint64_t size = trace.block_tokens;
  std::vector<std::uint32_t> shared, all, under_a_block, longer;  // shared: blocks of each request
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < out.requests.size(); ++i) {
    Request& request = out.requests[i];
    std::uint32_t run = 0;
    while (run < request.n_blocks && prefixes.prompts[prefixes.path[at + run]] > 1) ++run;
    at += request.n_blocks;
    shared.push_back(run);
    all.push_back(i);
    if (run * size >= request.prompt_tokens) continue;  // others have all of it, the rest included
    request.prompt_tokens -= static_cast<std::uint32_t>(run * size);  // now what it has alone
    (request.prompt_tokens < size ? under_a_block : longer).push_back(i);
  }
  const auto prompt = [](Request& request) -> std::uint32_t& { return request.prompt_tokens; };
  deal(out.requests, under_a_block, combine({seed, key_of("rests")}), prompt);
  deal(out.requests, longer, combine({seed, key_of("tails")}), prompt);
  deal(out.requests, all, combine({seed, key_of("answers")}),
       [](Request& request) -> std::uint32_t& { return request.generated_tokens; });

  std::vector<BlockId> numbers(prefixes.prompts.size(), UINT64_MAX);
  BlockId next = 0;
  std::vector<bool> alone(out.requests.size());
  for (const std::uint32_t i : under_a_block) alone[i] = true;
  for (const std::uint32_t i : longer) alone[i] = true;
  out.blocks.clear();
  at = 0;
  for (std::uint32_t i = 0; i < out.requests.size(); ++i) {
    Request& request = out.requests[i];
    const std::uint64_t first = out.blocks.size();
    for (std::uint32_t k = 0; k < shared[i]; ++k) {
      BlockId& number = numbers[prefixes.path[at + k]];
      if (number == UINT64_MAX) number = next++;
      out.blocks.push_back(number);
    }
    at += request.n_blocks;
    if (alone[i]) {
      const std::uint64_t own = block_count(request.prompt_tokens, trace.block_tokens, trace.tail);
      for (std::uint64_t k = 0; k < own; ++k) out.blocks.push_back(next++);
      const std::uint64_t tokens = shared[i] * size + request.prompt_tokens;
      if (tokens > UINT32_MAX / 2) usage_error("makes a prompt longer than 2,147,483,647 tokens", "--like");
      request.prompt_tokens = static_cast<std::uint32_t>(tokens);
    }
    request.first_block = first;
    request.n_blocks = static_cast<std::uint32_t>(out.blocks.size() - first);
    request.line = 0;
  }
  return out;
}

}  // namespace kvsim::requests
