#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "tests/support/source_folder.hpp"
#include "traces/requests/generate_requests.hpp"
#include "traces/requests/generated_blocks.hpp"
#include "traces/requests/read_requests.hpp"

namespace kvsim::requests::test_generated_blocks {

namespace {

using Ids = std::vector<BlockId>;

Ids first(const Ids& ids, std::size_t n) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n)};
}

/// The definition, in quadratic time: every request looks at all earlier ones.
std::vector<Ids> slow_finals(const RequestTrace& trace, bool has_turns) {
  const std::uint64_t size = trace.block_tokens;
  std::vector<Ids> prompts, finals;
  for (const Request& request : trace.requests) {
    const auto blocks = trace.prompt_blocks(request);
    prompts.emplace_back(blocks.begin(), blocks.end());
  }
  finals.resize(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    std::size_t parent = prompts.size(), longest = 0;
    const Request& child = trace.requests[i];
    const std::size_t whole = child.prompt_tokens / size;
    if (has_turns && child.parent != kNone) parent = child.parent;
    for (std::size_t j = 0; j < i && !has_turns; ++j) {
      const std::size_t own = trace.requests[j].prompt_tokens / size;
      if (own < 1 || own > whole || own < longest || first(prompts[j], own) != first(prompts[i], own))
        continue;
      longest = own;
      parent = j;
    }
    if (parent == prompts.size() || !finals[parent].empty()) continue;
    const Request& before = trace.requests[parent];
    const std::size_t own = before.prompt_tokens / size;
    if (own > whole || first(prompts[parent], own) != first(prompts[i], own)) continue;
    finals[parent] = first(
        prompts[i], std::min<std::size_t>(whole, (before.prompt_tokens + before.generated_tokens) / size));
  }
  return finals;
}

void check_inferred(RequestTrace trace, bool has_turns) {
  const std::vector<Ids> expected = slow_finals(trace, has_turns);
  infer_generated(trace);
  CHECK(trace.generated == Generated::inferred);
  std::size_t known = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Request& request = trace.requests[i];
    REQUIRE(request.n_final_blocks == expected[i].size());
    if (expected[i].empty()) continue;
    const auto blocks = trace.final_blocks(request);
    REQUIRE(Ids(blocks.begin(), blocks.end()) == expected[i]);
    ++known;
  }
  CHECK(known > 50);
}

RequestTrace generated(bool content) {
  RequestTrace trace = generate_requests({.seed = 3, .requests = 500, .block_tokens = 100});
  forget_generated(trace);
  // Content ids of few different values occur behind many prefixes.
  if (content) {
    trace.hashing = Hashing::content;
    for (BlockId& id : trace.blocks) id %= 3;
  }
  return trace;
}

}  // namespace

TEST_CASE("inferred blocks are those of the definition: sessions, chained ids, content ids") {
  check_inferred(generated(false), true);
  for (const bool content : {false, true}) {
    RequestTrace trace = generated(content);
    for (Request& request : trace.requests) request.parent = kNone;
    check_inferred(trace, false);
  }
  check_inferred(
      read_requests(test::source_folder() + "/traces/sample/requests/mooncake_conversation.jsonl.gz",
                    {.limit = 1500}),
      false);
}

TEST_CASE("what is given stays, and a trace without blocks has nothing to infer") {
  RequestTrace trace = generate_requests({.requests = 50});
  const std::uint32_t blocks = trace.requests[0].n_final_blocks;
  infer_generated(trace);
  CHECK(trace.generated == Generated::given);
  CHECK(trace.requests[0].n_final_blocks == blocks);
  RequestTrace none{.format = "azure"};
  CHECK_THROWS_AS(infer_generated(none), Error);
}

}  // namespace kvsim::requests::test_generated_blocks
