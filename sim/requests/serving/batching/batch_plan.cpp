#include "sim/requests/serving/batching/batch_plan.hpp"

#include <algorithm>

#include "sim/base/enum_names.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/cost/checked.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "sim/requests/serving/batching/prefix_groups.hpp"

namespace kvsim::serving {
namespace {

using requests::Request;
using requests::RequestTrace;

constexpr const char* kNames[] = {"padded", "sorted", "packed", "unpadded", "cached", "grouped"};

/// A request in its place: with what it finds, and what it has in common with those beside it.
struct Placed {
  std::uint32_t request = 0;
  std::uint64_t found = 0;   ///< tokens of its prompt that need not be computed
  std::uint64_t prefix = 0;  ///< tokens of its group's prefix
  std::uint32_t group = 0;
};

std::vector<Placed> in_order(const RequestTrace& trace) {
  std::vector<Placed> out(trace.requests.size());
  for (std::uint32_t i = 0; i < out.size(); ++i) out[i] = {.request = i, .group = i};
  return out;
}

std::vector<Placed> by_length(const RequestTrace& trace) {
  std::vector<Placed> out = in_order(trace);
  std::stable_sort(out.begin(), out.end(), [&](const Placed& a, const Placed& b) {
    return trace.requests[a.request].prompt_tokens > trace.requests[b.request].prompt_tokens;
  });
  return out;
}

std::vector<Placed> behind_lru(const RequestTrace& trace, const prefix::PrefixTree& tree,
                               std::uint64_t capacity) {
  std::vector<Placed> out = in_order(trace);
  prefix::LruStack stack(tree);
  const std::uint64_t blocks = capacity / trace.block_tokens;
  for (Placed& placed : out) {
    const std::uint64_t hits = prefix::LruStack::within(stack.find(tree.prompt(placed.request)), blocks);
    // The last token of a prompt is always computed, for the logits.
    placed.found =
        std::min<std::uint64_t>(hits * trace.block_tokens, trace.requests[placed.request].prompt_tokens - 1);
    stack.touch(tree.final_path(placed.request), placed.request);
  }
  return out;
}

std::vector<Placed> by_group(const RequestTrace& trace, const prefix::PrefixTree& tree) {
  const PrefixGroups groups = prefix_groups(trace, tree);
  std::vector<Placed> out;
  for (std::uint32_t group = 0; group < groups.groups.size(); ++group) {
    const PrefixGroup& of = groups.groups[group];
    for (const std::uint32_t request : of.requests)
      out.push_back(
          {request, request == of.requests.front() ? 0 : of.prefix_tokens, of.prefix_tokens, group});
  }
  return out;
}

std::vector<Placed> placed_requests(const RequestTrace& trace, const prefix::PrefixTree* tree,
                                    const BatchSettings& settings) {
  if (needs_blocks(settings.batching) && (tree == nullptr || !trace.has_blocks()))
    usage_error("needs to know which prompts share tokens, and a trace of format " + trace.format +
                    " does not say it",
                batching_name(settings.batching));
  if (settings.batching == Batching::sorted) return by_length(trace);
  if (settings.batching == Batching::cached) return behind_lru(trace, *tree, settings.capacity);
  if (settings.batching == Batching::grouped) return by_group(trace, *tree);
  return in_order(trace);
}

/// Tokens of keys and values at its end; the last generated one is never stored.
std::uint64_t stored_tokens(const Request& request) {
  return std::uint64_t{request.prompt_tokens} + std::max<std::uint32_t>(request.generated_tokens, 1) - 1;
}

void check(const RequestTrace& trace, const BatchSettings& settings) {
  if (settings.requests == 0) usage_error("batches of no requests", "batch");
  for (const Request& request : trace.requests) {
    const std::string where = request.line > 0
                                  ? "line " + std::to_string(request.line)
                                  : "request " + std::to_string(&request - trace.requests.data());
    if (request.prompt_tokens == 0) input_error("a request without a prompt", where);
    if (stored_tokens(request) > settings.capacity)
      input_error("a request of " + std::to_string(stored_tokens(request)) +
                      " tokens, and the memory holds " + std::to_string(settings.capacity),
                  where, "give more memory, or leave the request out");
  }
}

/// Prompts in rows of one length. Prepacking packs them; without it each has a row.
void fill_equal_rows(PromptBatch& batch, const RequestTrace& trace, bool packed) {
  std::vector<std::uint64_t> lengths;
  for (const std::uint32_t request : batch.requests) lengths.push_back(trace.requests[request].prompt_tokens);
  const Packing packing = pack(lengths);
  batch.chunks.assign(packed ? packing.rows.size() : lengths.size(), {packing.longest, 0});
  batch.padding_tokens = (packed ? packing.packed_tokens() : packing.padded_tokens()) - packing.tokens;
}

PromptBatch filled(const RequestTrace& trace, Batching batching, std::span<const Placed> placed) {
  PromptBatch out;
  for (const Placed& one : placed) out.requests.push_back(one.request);
  if (batching == Batching::padded || batching == Batching::sorted || batching == Batching::packed) {
    fill_equal_rows(out, trace, batching == Batching::packed);
    return out;
  }
  for (const Placed& one : placed) {
    const std::uint64_t prompt = trace.requests[one.request].prompt_tokens;
    out.found_tokens += one.found;
    // A prompt that is its group's prefix has nothing left: the prefix's own row gives its logits.
    if (prompt > one.found) out.chunks.push_back({prompt - one.found, one.found});
  }
  return out;
}

}  // namespace

const char* batching_name(Batching batching) {
  return name_in(kNames, batching);
}

std::vector<std::string> batching_names() {
  return {std::begin(kNames), std::end(kNames)};
}

Batching parse_batching(std::string_view name) {
  return parse_named<Batching>(kNames, name, "method");
}

std::vector<PromptBatch> plan_batches(const RequestTrace& trace, const prefix::PrefixTree* tree,
                                      const BatchSettings& settings) {
  check(trace, settings);
  const std::vector<Placed> placed = placed_requests(trace, tree, settings);
  std::vector<PromptBatch> out;
  std::size_t begin = 0;
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const std::uint64_t stored = stored_tokens(trace.requests[placed[i].request]);
    const bool first_of_group = i == begin || placed[i].group != placed[i - 1].group;
    const std::uint64_t more = stored - (first_of_group ? 0 : placed[i].prefix);
    if (i > begin && (i - begin == settings.requests || tokens + more > settings.capacity)) {
      out.push_back(filled(trace, settings.batching, std::span(placed).subspan(begin, i - begin)));
      begin = i;
      tokens = stored;
    } else {
      tokens += more;
    }
  }
  if (begin < placed.size())
    out.push_back(filled(trace, settings.batching, std::span(placed).subspan(begin)));
  return out;
}

Packing pack(std::span<const std::uint64_t> prompt_tokens) {
  if (prompt_tokens.empty()) usage_error("a batch of no prompts", "packing");
  Packing out;
  out.prompts = prompt_tokens.size();
  for (const std::uint64_t tokens : prompt_tokens) {
    if (tokens == 0) usage_error("a prompt of no tokens", "packing");
    out.longest = std::max(out.longest, tokens);
    out.tokens = cost::checked_sum("a batch", out.tokens, tokens);
  }
  cost::checked_product("a batch", out.prompts, out.longest, out.longest);
  std::vector<std::uint64_t> left;  // tokens of each row
  for (const std::uint32_t prompt : largest_first<std::uint32_t>(prompt_tokens)) {
    const std::uint64_t tokens = prompt_tokens[prompt];
    const auto row = static_cast<std::size_t>(
        std::find_if(left.begin(), left.end(), [&](std::uint64_t room) { return room >= tokens; }) -
        left.begin());
    if (row == left.size()) {
      left.push_back(out.longest);
      out.rows.emplace_back();
    }
    left[row] -= tokens;
    out.rows[row].push_back(prompt);
  }
  return out;
}

}  // namespace kvsim::serving
