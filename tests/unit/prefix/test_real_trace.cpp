#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "block_sampling.hpp"
#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"
#include "slow_cache.hpp"
#include "traces/requests/read_requests.hpp"

namespace kvsim::test_real_trace {

using prefix::Node;
using prefix::PrefixTree;
using requests::RequestTrace;

namespace {

const char* const kTrace = KVSIM_SOURCE_DIR "/traces/sample/requests/mooncake_conversation.jsonl.gz";
const char* const kSynthetic = KVSIM_SOURCE_DIR "/traces/sample/requests/mooncake_synthetic.jsonl.gz";

prefix::Cell cell(const std::string& text, std::uint64_t capacity) {
  return {policy::parse_replacement(text, policy::builtin()), capacity};
}

std::vector<prefix::CellHits> replayed(const RequestTrace& trace, const std::vector<prefix::Cell>& cells,
                                       const prefix::ReplaySettings& settings = {}) {
  Workers workers(2);
  std::vector<prefix::CellHits> out;
  prefix::replay(PrefixTree(trace), trace, cells, settings, workers,
                 [&](prefix::CellHits&& hits) { out.push_back(std::move(hits)); });
  return out;
}

/// Tokens of the leading runs from request `first` on: the last block of a prompt counts with what is in it.
std::uint64_t hit_tokens(const RequestTrace& trace, const prefix::CellHits& hits, std::size_t first) {
  std::uint64_t out = 0;
  for (std::size_t r = first; r < trace.requests.size(); ++r)
    out += std::min<std::uint64_t>(std::uint64_t{hits.run[r]} * trace.block_tokens,
                                   trace.requests[r].prompt_tokens);
  return out;
}

}  // namespace

TEST_CASE("Mooncake's traces: an infinite cache, and LRU between it and nothing") {
  struct Known {
    const char* path;
    std::size_t requests, nodes;
    std::uint64_t last_half;  ///< tokens that an infinite cache hits in the second half of the requests
  };
  for (const Known& known :
       {Known{kTrace, 12031, 182790, 27038068}, Known{kSynthetic, 3993, 43924, 31535563}}) {
    INFO(known.path);
    const RequestTrace trace = requests::read_requests(known.path);
    REQUIRE(trace.requests.size() == known.requests);
    const PrefixTree tree(trace);
    CHECK(tree.size() == known.nodes);
    const auto hits = replayed(
        trace, {cell("lru", tree.size()), cell("opt", tree.size()), cell("lru", 1000), cell("opt", 1000)});
    // Every request, and those of the second half of the trace: an infinite cache's hits are counted by hand
    // with a set of ids.
    std::set<requests::BlockId> seen;
    std::uint64_t all = 0, last_half = 0;
    for (std::size_t r = 0; r < trace.requests.size(); ++r) {
      std::uint64_t run = 0;
      bool leading = true;
      for (const requests::BlockId id : trace.prompt_blocks(trace.requests[r])) {
        leading = leading && seen.contains(id);
        run += leading ? 1 : 0;
      }
      for (const requests::BlockId id : trace.prompt_blocks(trace.requests[r])) seen.insert(id);
      const std::uint64_t tokens = std::min<std::uint64_t>(run * 512, trace.requests[r].prompt_tokens);
      all += tokens;
      if (r >= trace.requests.size() / 2) last_half += tokens;
    }
    CHECK(last_half == known.last_half);
    for (const std::size_t infinite : {0, 1}) {
      CHECK(hit_tokens(trace, hits[infinite], 0) == all);
      CHECK(hit_tokens(trace, hits[infinite], trace.requests.size() / 2) == last_half);
      CHECK(hits[infinite].evictions == 0);
    }
    CHECK(hit_tokens(trace, hits[2], 0) < hit_tokens(trace, hits[3], 0));
    CHECK(hit_tokens(trace, hits[3], 0) < all);
  }
}

TEST_CASE("policies on the conversation trace's first requests hit what their slow twins hit") {
  RequestTrace trace = requests::read_requests(kTrace, {.limit = 300});
  const PrefixTree tree(trace);
  for (const auto& [fast, slow] : slow::kTwins) {
    INFO(fast);
    const auto hits = replayed(trace, {cell(fast, 250)})[0];
    CHECK(hits.run == slow::slow_runs(slow, trace, tree, 250));
    CHECK(hits.evictions > 0);
  }
}

TEST_CASE("a tenth of the blocks tells LRU's block hits of the conversation trace to two points") {
  const RequestTrace trace = requests::read_requests(kTrace);
  const PrefixTree tree(trace);
  const auto misses = [](const RequestTrace& of, const prefix::CellHits& hits) {
    std::uint64_t out = of.blocks.size();
    for (const std::uint32_t run : hits.run) out -= run;
    return out;
  };
  const std::vector<std::uint64_t> capacities{1000, 3000, 10000, 30000, 100000};
  std::vector<prefix::Cell> whole, tenth;
  for (const std::uint64_t capacity : capacities) {
    whole.push_back(cell("lru", capacity));
    tenth.push_back(cell("lru", capacity / 10));
  }
  const auto exact = replayed(trace, whole);
  for (const std::uint64_t seed : {1, 2, 3}) {
    const RequestTrace sample = prefix::sampled_blocks(trace, tree, 0.1, seed);
    const auto estimated = replayed(sample, tenth);
    for (std::size_t i = 0; i < capacities.size(); ++i) {
      INFO("capacity " << capacities[i] << " seed " << seed);
      const double share = 1 - double(misses(trace, exact[i])) / double(trace.blocks.size());
      CHECK(prefix::hit_share(misses(sample, estimated[i]), trace.blocks.size(), 0.1) ==
            Approx(share).margin(0.02));
    }
  }
  // All blocks are the trace itself.
  const RequestTrace all = prefix::sampled_blocks(trace, tree, 1, 1);
  CHECK(replayed(all, whole)[2].run == exact[2].run);
}

TEST_CASE("a tenth of the subtrees: leading runs are whole, and hits of any policy within a few points") {
  const RequestTrace trace = requests::read_requests(kTrace);
  const PrefixTree tree(trace);
  const auto share = [](const RequestTrace& of, const prefix::CellHits& hits) {
    std::uint64_t tokens = 0;
    for (const requests::Request& request : of.requests) tokens += request.prompt_tokens;
    return static_cast<double>(hit_tokens(of, hits, 0)) / static_cast<double>(tokens);
  };
  const std::vector<std::string> policies{"fifo", "arc", "s3_fifo", "w_tinylfu", "opt"};
  const std::vector<std::uint64_t> capacities{3000, 10000, 30000, 100000};
  std::vector<prefix::Cell> cells{cell("lru", tree.size())};
  for (const std::string& policy : policies)
    for (const std::uint64_t capacity : capacities) cells.push_back(cell(policy, capacity));
  const auto exact = replayed(trace, cells);
  std::vector<double> squares(policies.size(), 0);
  constexpr std::uint64_t kSeeds = 5;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const prefix::SubtreeSample sample = prefix::sampled_subtrees(trace, tree, 0.1, seed);
    // One block, the first, is everybody's.
    CHECK(sample.trunk == 1);
    CHECK(sample.capacity(10001) == 1001);
    std::vector<prefix::Cell> small = cells;
    for (prefix::Cell& of : small) of.capacity = sample.capacity(of.capacity);
    small[0].capacity = tree.size();
    const auto estimated = replayed(sample.trace, small);
    // In a cache without a limit a request of the sample hits what it hits in the trace, the first block of
    // the very first one apart.
    std::map<std::uint64_t, std::uint32_t> by_line;
    for (std::size_t r = 0; r < trace.requests.size(); ++r) by_line[trace.requests[r].line] = exact[0].run[r];
    for (std::size_t r = 1; r < sample.trace.requests.size(); ++r)
      REQUIRE(estimated[0].run[r] == by_line.at(sample.trace.requests[r].line));
    const double ceiling = share(trace, exact[0]), sampled_ceiling = share(sample.trace, estimated[0]);
    for (std::size_t i = 1; i < cells.size(); ++i) {
      const double error =
          prefix::subtree_hit_share(share(sample.trace, estimated[i]), sampled_ceiling, ceiling) -
          share(trace, exact[i]);
      squares[(i - 1) / capacities.size()] += error * error;
    }
  }
  for (std::size_t i = 0; i < policies.size(); ++i) {
    INFO(policies[i]);
    CHECK(std::sqrt(squares[i] / static_cast<double>(kSeeds * capacities.size())) < 0.05);
  }
  // All subtrees are the trace itself.
  const prefix::SubtreeSample all = prefix::sampled_subtrees(trace, tree, 1, 1);
  CHECK(all.capacity(3000) == 3000);
  CHECK(replayed(all.trace, {cells[5]})[0].run == exact[5].run);
}

TEST_CASE("subtrees of small traces, and mistakes with samples") {
  // Three requests share A; B and C stand behind it, one request ends with it.
  RequestTrace trace{.format = "by hand", .block_tokens = 16};
  for (const std::vector<requests::BlockId>& prompt :
       std::vector<std::vector<requests::BlockId>>{{1, 2}, {1, 2, 4}, {1, 3}, {1}}) {
    requests::Request request{.line = trace.requests.size() + 1};
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(prompt.size());
    trace.blocks.insert(trace.blocks.end(), prompt.begin(), prompt.end());
    trace.requests.push_back(request);
  }
  trace.requests[1].parent = 0;
  const PrefixTree tree(trace);
  std::set<std::set<std::uint64_t>> samples;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    // A block of more than three fifths of the requests is the trunk: A.
    const prefix::SubtreeSample sample = prefix::sampled_subtrees(trace, tree, 0.5, seed, 0.6);
    CHECK(sample.trunk == 1);
    CHECK(sample.capacity(5) == 3);
    std::set<std::uint64_t> lines;
    for (const requests::Request& request : sample.trace.requests) lines.insert(request.line);
    // The two behind B come together, and the later one finds its parent.
    CHECK(lines.contains(1) == lines.contains(2));
    if (lines.contains(2)) CHECK(sample.trace.requests[1].parent == 0);
    samples.insert(lines);
  }
  CHECK(samples.size() == 8);
  CHECK_THROWS_WITH(prefix::sampled_subtrees(trace, tree, 0, 1), Catch::Contains("above 0"));
  CHECK_THROWS_WITH(prefix::sampled_subtrees(trace, tree, std::nan(""), 1), Catch::Contains("above 0"));
  trace.requests[1].after_parent = true;
  CHECK_THROWS_WITH(prefix::sampled_subtrees(trace, tree, 0.5, 1), Catch::Contains("after their parents"));
}

}  // namespace kvsim::test_real_trace
