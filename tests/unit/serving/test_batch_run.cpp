#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <map>
#include <set>

#include "sim/base/error.hpp"
#include "sim/requests/serving/batching/batch_run.hpp"
#include "sim/requests/serving/batching/prefix_groups.hpp"
#include "tests/unit/serving/made_requests.hpp"

namespace kvsim::serving::test_batch_run {
namespace {

using Numbers = std::vector<std::uint32_t>;

/// Whole numbers that depend on everything a step has, so that sums are exact in any order.
double whole_price(const cost::StepWork& work) {
  std::uint64_t seconds = 3 + 5 * work.decoding + 2 * work.sampled;
  seconds += work.shared ? work.shared->tokens + 7 * work.shared->partials + 11 * work.shared->levels
                         : work.attended;
  for (const cost::Chunk& chunk : work.chunks) seconds += chunk.tokens * (7 + chunk.past);
  return static_cast<double>(seconds);
}

std::vector<Numbers> members(const std::vector<PromptBatch>& batches) {
  std::vector<Numbers> out;
  for (const PromptBatch& batch : batches) out.push_back(batch.requests);
  return out;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> rows(const PromptBatch& batch) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (const cost::Chunk& chunk : batch.chunks) out.push_back({chunk.tokens, chunk.past});
  return out;
}

using Rows = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

TEST_CASE("Batches and their rows by hand", "[serving]") {
  // Blocks of 10 tokens; the first and the third prompt begin alike.
  const auto trace =
      made_trace({{0, 30, 3, {1, 2, 3}}, {0, 10, 1, {7}}, {0, 20, 2, {1, 2}}, {0, 15, 1, {8, 9}}}, 10);
  const prefix::PrefixTree tree(trace);
  const auto plan = [&](Batching batching, std::uint32_t requests = 3, std::uint64_t capacity = 1000) {
    return plan_batches(trace, &tree, {batching, requests, capacity});
  };
  SECTION("padded") {
    const auto batches = plan(Batching::padded);
    CHECK(members(batches) == std::vector<Numbers>{{0, 1, 2}, {3}});
    CHECK(rows(batches[0]) == Rows{{30, 0}, {30, 0}, {30, 0}});
    CHECK(batches[0].padding_tokens == 30);
    CHECK(rows(batches[1]) == Rows{{15, 0}});
  }
  SECTION("sorted") {
    const auto batches = plan(Batching::sorted);
    CHECK(members(batches) == std::vector<Numbers>{{0, 2, 3}, {1}});
    CHECK(batches[0].padding_tokens == 25);
  }
  SECTION("packed") {
    const auto batches = plan(Batching::packed);
    CHECK(rows(batches[0]) == Rows{{30, 0}, {30, 0}});  // 20 and 10 share a row
    CHECK(batches[0].padding_tokens == 0);
  }
  SECTION("unpadded") {
    CHECK(rows(plan(Batching::unpadded)[0]) == Rows{{30, 0}, {10, 0}, {20, 0}});
  }
  SECTION("cached") {
    const auto batches = plan(Batching::cached);
    // Both blocks of the third prompt are there, and its last token is computed.
    CHECK(rows(batches[0]) == Rows{{30, 0}, {10, 0}, {1, 19}});
    CHECK(batches[0].found_tokens == 19);
    // Of three blocks the second prompt takes one: the first prompt's last.
    CHECK(rows(plan(Batching::cached, 3, 39)[0]) == Rows{{30, 0}});
    CHECK(rows(plan(Batching::cached, 3, 39)[1]) == Rows{{10, 0}, {1, 19}});
  }
  SECTION("grouped") {
    const auto batches = plan(Batching::grouped);
    // Of 15 computed tokens one is generated, of 10 one, of 30 five: the group of two is first.
    CHECK(members(batches) == std::vector<Numbers>{{0, 2, 1}, {3}});
    CHECK(rows(batches[0]) == Rows{{30, 0}, {10, 0}});  // the third prompt is the prefix
    CHECK(batches[0].found_tokens == 20);
    // At their ends both take 32 and 21 tokens, of which 20 are the same.
    CHECK(members(plan(Batching::grouped, 3, 33)) == std::vector<Numbers>{{0, 2}, {1, 3}});
    CHECK(members(plan(Batching::grouped, 3, 32)) == std::vector<Numbers>{{0}, {2, 1}, {3}});
  }
  SECTION("memory") {
    CHECK(members(plan(Batching::unpadded, 3, 42)) == std::vector<Numbers>{{0, 1}, {2, 3}});
    CHECK(members(plan(Batching::unpadded, 3, 41)) == std::vector<Numbers>{{0}, {1, 2}, {3}});
    CHECK_THROWS_WITH(plan(Batching::unpadded, 3, 31), Catch::Contains("a request of 32 tokens"));
  }
  SECTION("what cannot be") {
    CHECK_THROWS_WITH(plan_batches(trace, nullptr, {Batching::grouped, 3, 1000}), Catch::Contains("share"));
    CHECK_THROWS_WITH(plan(Batching::padded, 0), Catch::Contains("no requests"));
    CHECK_THROWS_WITH(plan_batches(made_trace({{0, 0, 5}}), nullptr, {Batching::padded, 3, 1000}),
                      Catch::Contains("without a prompt"));
    CHECK_THROWS_WITH(parse_batching("pack"), Catch::Contains("packed"));
  }
}

TEST_CASE("Steps of a batch by hand", "[serving]") {
  const auto trace = made_trace({{0, 30, 3, {1, 2, 3}}, {0, 10, 1, {7}}, {0, 20, 2, {1, 2}}}, 10);
  const prefix::PrefixTree tree(trace);
  const auto batches = plan_batches(trace, &tree, {Batching::unpadded, 3, 1000});
  const BatchSummary run = run_batches(trace, &tree, batches, 0, whole_price);
  CHECK(run.prompt_tokens == 60);
  CHECK(run.computed_tokens == 60);
  CHECK(run.prompt_seconds == 3 + 2 * 3 + 7 * 60);
  // Step 1: the first and the third, 31 and 21 tokens, of which 20 are the same. Step 2: the first alone.
  CHECK(run.steps == 2);
  CHECK(run.separate.tokens == 31 + 21 + 32);
  CHECK(run.separate.seconds == (3 + 10 + 4 + 52) + (3 + 5 + 2 + 32));
  REQUIRE(run.shared);
  CHECK(run.shared->tokens == 20 + 11 + 1 + 32);
  CHECK(run.shared->partials == 4);
  CHECK(run.shared->seconds == (3 + 10 + 4 + 32 + 7 * 4 + 11 * 2) + (3 + 5 + 2 + 32 + 11));
  // A window of 25 tokens ends what is known of shared reads.
  const BatchSummary windowed = run_batches(trace, &tree, batches, 25, whole_price);
  CHECK(windowed.separate.within_window == 25 + 21 + 25);
  CHECK_FALSE(windowed.shared);
}

requests::RequestTrace random_trace(std::uint64_t seed) {
  std::vector<Made> made;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto of = [&](std::uint64_t what, std::uint64_t n) { return pick(combine({seed, i, what}), n); };
    Made request{0, static_cast<std::uint32_t>(1 + of(1, 40)), static_cast<std::uint32_t>(of(2, 9))};
    requests::BlockId id = 0;
    for (std::uint32_t block = 0; block < request.prompt / 4; ++block) {
      id = combine({id, block, of(10 + block, 2)});
      request.blocks.push_back(id);
    }
    // A tail has an id of its own, which every second prompt with the same blocks before it has, too.
    if (request.prompt % 4 != 0)
      request.blocks.push_back(combine({id, request.prompt % 4, of(9, 2) ? i : 99}));
    made.push_back(request);
  }
  return made_trace(made, 4);
}

/// A token is what it is behind all before it.
using Token = std::vector<std::uint64_t>;

std::vector<Token> tokens_of(const requests::RequestTrace& trace, std::uint32_t request) {
  std::vector<Token> out;
  const auto blocks = trace.prompt_blocks(trace.requests[request]);
  for (std::uint32_t at = 0; at < trace.requests[request].prompt_tokens; ++at) {
    Token token(blocks.begin(), blocks.begin() + at / trace.block_tokens + 1);
    token.push_back(at);
    out.push_back(token);
  }
  return out;
}

struct SlowReads {
  std::uint64_t separate = 0, shared = 0, partials = 0, levels = 0;
};

/// Of sequences that have generated `step` tokens: every token of every sequence is looked up.
SlowReads slow_reads(const requests::RequestTrace& trace, const std::set<std::uint32_t>& running,
                     std::uint64_t step) {
  std::map<Token, std::set<std::uint32_t>> readers;
  SlowReads out;
  for (const std::uint32_t request : running) {
    std::vector<Token> all = tokens_of(trace, request);
    for (std::uint64_t i = 0; i < step; ++i) all.push_back({~std::uint64_t{0}, request, i});
    out.separate += all.size();
    for (const Token& token : all) readers[token].insert(request);
  }
  out.shared = readers.size();
  // A level of a sequence is a set of sequences that read one of its tokens together.
  for (const std::uint32_t request : running) {
    std::set<std::set<std::uint32_t>> levels;
    for (const auto& [token, by] : readers)
      if (by.contains(request)) levels.insert(by);
    out.partials += levels.size() > 1 ? levels.size() : 0;
    out.levels = std::max<std::uint64_t>(out.levels, levels.size());
  }
  return out;
}

TEST_CASE("Reads of every step equal those counted token by token", "[serving]") {
  std::uint64_t partials = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const auto trace = random_trace(seed);
    const prefix::PrefixTree tree(trace);
    const auto batches = plan_batches(trace, &tree, {Batching::unpadded, 7, 150});
    const BatchSummary run = run_batches(trace, &tree, batches, 0, whole_price);
    std::uint64_t steps = 0, separate = 0, shared = 0, seen_partials = 0;
    double seconds = 0;
    for (const PromptBatch& batch : batches)
      for (std::uint64_t step = 1;; ++step) {
        std::set<std::uint32_t> running;
        for (const std::uint32_t request : batch.requests)
          if (trace.requests[request].generated_tokens > step) running.insert(request);
        if (running.empty()) break;
        const SlowReads reads = slow_reads(trace, running, step);
        ++steps;
        separate += reads.separate;
        shared += reads.shared;
        seen_partials += reads.partials;
        seconds += 3 + 7.0 * static_cast<double>(running.size()) +
                   static_cast<double>(reads.shared + 7 * reads.partials + 11 * reads.levels);
      }
    REQUIRE(run.steps == steps);
    REQUIRE(run.separate.tokens == separate);
    REQUIRE(run.shared->tokens == shared);
    REQUIRE(run.shared->partials == seen_partials);
    REQUIRE(run.shared->seconds == seconds);
    partials += seen_partials;
  }
  CHECK(partials > 1000);
}

/// What an LRU cache of blocks finds, as a list that is searched.
std::uint64_t slow_found(const requests::RequestTrace& trace, std::uint64_t blocks) {
  std::list<Token> cache;
  std::uint64_t found = 0;
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
    const auto ids = trace.prompt_blocks(trace.requests[i]);
    std::vector<Token> path;
    for (std::size_t block = 1; block <= ids.size(); ++block)
      path.emplace_back(ids.begin(), ids.begin() + static_cast<long>(block));
    std::size_t run = 0;
    while (run < path.size() && std::find(cache.begin(), cache.end(), path[run]) != cache.end()) ++run;
    found += std::min<std::uint64_t>(run * trace.block_tokens, trace.requests[i].prompt_tokens - 1);
    std::for_each(path.rbegin(), path.rend(), [&](const Token& block) {
      cache.remove(block);
      cache.push_back(block);
    });
    while (cache.size() > blocks) cache.pop_front();
  }
  return found;
}

TEST_CASE("Laws of batches", "[serving]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto trace = random_trace(seed);
    const prefix::PrefixTree tree(trace);
    std::map<Batching, BatchSummary> runs;
    for (const std::string& name : batching_names()) {
      CAPTURE(seed, name);
      const BatchSettings settings{parse_batching(name), static_cast<std::uint32_t>(1 + seed % 9),
                                   60 + 10 * (seed % 7)};
      const auto batches = plan_batches(trace, &tree, settings);
      std::set<std::uint32_t> seen;
      for (const PromptBatch& batch : batches) {
        REQUIRE(batch.requests.size() <= settings.requests);
        for (const std::uint32_t request : batch.requests) REQUIRE(seen.insert(request).second);
        if (settings.batching == Batching::grouped) continue;
        std::uint64_t stored = 0;
        for (const std::uint32_t request : batch.requests)
          stored += trace.requests[request].prompt_tokens +
                    std::max(trace.requests[request].generated_tokens, 1u) - 1;
        REQUIRE(stored <= settings.capacity);
      }
      REQUIRE(seen.size() == trace.requests.size());
      const BatchSummary run = run_batches(trace, &tree, batches, 0, whole_price);
      REQUIRE(run.computed_tokens == run.prompt_tokens - run.found_tokens + run.padding_tokens);
      REQUIRE(run.shared->tokens <= run.separate.tokens);
      if (settings.batching == Batching::cached)
        REQUIRE(run.found_tokens == slow_found(trace, settings.capacity / trace.block_tokens));
      runs[settings.batching] = run;
    }
    CAPTURE(seed);
    REQUIRE(runs[Batching::packed].computed_tokens <= runs[Batching::padded].computed_tokens);
    REQUIRE(runs[Batching::unpadded].computed_tokens <= runs[Batching::packed].computed_tokens);
    REQUIRE(runs[Batching::unpadded].padding_tokens == 0);
    REQUIRE(runs[Batching::grouped].found_tokens == prefix_groups(trace, tree).saved_tokens);
    // The same batches take the same steps, whatever stood in the rows of their prompts.
    REQUIRE(runs[Batching::packed].separate.seconds == runs[Batching::padded].separate.seconds);
    // One request at a time shares nothing.
    const auto alone = plan_batches(trace, &tree, {Batching::grouped, 1, 1000});
    const BatchSummary lonely = run_batches(trace, &tree, alone, 0, whole_price);
    REQUIRE(lonely.shared->tokens == lonely.separate.tokens);
    REQUIRE(lonely.shared->partials == 0);
  }
}

}  // namespace
}  // namespace kvsim::serving::test_batch_run
