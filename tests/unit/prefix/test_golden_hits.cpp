// How many tokens of Mooncake's conversation trace every replacement hits. The numbers are those of the slow
// twins: the hidden case at the end computes those of the first 2,000 requests again, in some five minutes,
// with `test_prefix "[slow]"`.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/requests/prefix/hit_replay.hpp"
#include "slow_cache.hpp"
#include "traces/requests/read_requests.hpp"

namespace kvsim::test_golden_hits {

namespace {

const char* const kTrace = KVSIM_SOURCE_DIR "/traces/sample/requests/mooncake_conversation.jsonl.gz";

struct Golden {
  std::string policy, slow;
  std::uint64_t at_1000, at_4000;  ///< tokens, by capacity in blocks
};

/// Of the first 2,000 requests. A block at depth d takes 1 + d / 64 seconds to recompute.
const std::vector<Golden> kFirst = {
    {"fifo", "fifo", 1135616, 2387723},
    {"lru", "lru", 1135616, 2572555},
    {"slru", "slru", 1277440, 2646403},
    {"lfu", "lfu", 1135616, 2889603},
    {"arc", "arc", 1280512, 2852227},
    {"sieve", "sieve", 1277440, 2646403},
    {"s3_fifo", "s3_fifo", 1453091, 3062580},
    {"w_tinylfu", "w_tinylfu", 1815149, 3812771},
    {"lhd(period=1024,decay=0.5)", "lhd 32 8 1024 0.5", 1046955, 1729679},
    {"ttl", "ttl", 1135616, 2572555},
    {"priority", "priority", 1135616, 2572555},
    {"category", "category", 1135616, 2572555},
    {"queue_lru", "queue_lru", 1192363, 2721401},
    {"gdsf", "gdsf", 1052160, 1671469},
    {"hpt", "hpt", 1023488, 1048064},
    {"opt", "opt", 5025685, 8027924},
};

/// Of all requests, at 2,000 blocks.
const std::vector<std::pair<std::string, std::uint64_t>> kWhole = {
    {"fifo", 7885165},           {"lru", 8016630},   {"slru", 8807918},     {"lfu", 8384146},
    {"arc", 10555708},           {"sieve", 8807918}, {"s3_fifo", 11314542}, {"w_tinylfu", 13227229},
    {"lhd(decay=0.5)", 6432663}, {"ttl", 8016630},
};

std::vector<double> depth_seconds() {
  std::vector<double> out;
  for (int depth = 0; depth < 1024; ++depth) out.push_back(1 + depth / 64.0);
  return out;
}

std::uint64_t tokens(const requests::RequestTrace& trace, const std::vector<std::uint32_t>& runs) {
  std::uint64_t out = 0;
  for (std::size_t r = 0; r < runs.size(); ++r)
    out +=
        std::min<std::uint64_t>(std::uint64_t{runs[r]} * trace.block_tokens, trace.requests[r].prompt_tokens);
  return out;
}

prefix::Cell cell(const std::string& policy, std::uint64_t capacity) {
  return {policy::parse_replacement(policy, policy::builtin()), capacity};
}

std::vector<std::uint64_t> hits(const requests::RequestTrace& trace, const std::vector<prefix::Cell>& cells) {
  const std::vector<double> seconds = depth_seconds();
  Workers workers(2);
  std::vector<std::uint64_t> out;
  prefix::replay(prefix::PrefixTree(trace), trace, cells, {.seconds = seconds}, workers,
                 [&](prefix::CellHits&& of) { out.push_back(tokens(trace, of.run)); });
  return out;
}

}  // namespace

TEST_CASE("golden hits of every replacement") {
  const requests::RequestTrace trace = requests::read_requests(kTrace, {.limit = 2000});
  std::vector<prefix::Cell> cells;
  for (const Golden& golden : kFirst)
    for (const std::uint64_t capacity : {1000, 4000}) cells.push_back(cell(golden.policy, capacity));
  const std::vector<std::uint64_t> found = hits(trace, cells);
  for (std::size_t i = 0; i < kFirst.size(); ++i) {
    INFO(kFirst[i].policy);
    CHECK(found[2 * i] == kFirst[i].at_1000);
    CHECK(found[2 * i + 1] == kFirst[i].at_4000);
    CHECK(kFirst[i].at_1000 <= kFirst.back().at_1000);
    CHECK(kFirst[i].at_4000 <= kFirst.back().at_4000);
  }
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::replacement) continue;
    INFO(spec.name);
    CHECK(std::any_of(kFirst.begin(), kFirst.end(), [&](const Golden& golden) {
      return golden.policy.substr(0, golden.policy.find('(')) == spec.name;
    }));
  }
}

TEST_CASE("golden hits in the whole conversation trace") {
  const requests::RequestTrace trace = requests::read_requests(kTrace);
  std::vector<prefix::Cell> cells;
  for (const auto& golden : kWhole) cells.push_back(cell(golden.first, 2000));
  // OPT is the upper bound of all of them, and what more capacity brings LRU and OPT is never less than
  // nothing.
  const std::vector<std::uint64_t> capacities{500, 2000, 10000, 50000, 200000};
  for (const std::string policy : {"lru", "opt"})
    for (const std::uint64_t capacity : capacities) cells.push_back(cell(policy, capacity));
  const std::vector<std::uint64_t> found = hits(trace, cells);
  for (std::size_t i = 0; i < kWhole.size(); ++i) {
    INFO(kWhole[i].first);
    CHECK(found[i] == kWhole[i].second);
    CHECK(found[i] <= found[kWhole.size() + capacities.size() + 1]);
  }
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    const std::uint64_t lru = found[kWhole.size() + i], opt = found[kWhole.size() + capacities.size() + i];
    CHECK(lru <= opt);
    if (i == 0) continue;
    CHECK(lru >= found[kWhole.size() + i - 1]);
    CHECK(opt >= found[kWhole.size() + capacities.size() + i - 1]);
  }
}

TEST_CASE("what the slow twins hit is the golden number", "[.][slow]") {
  const requests::RequestTrace trace = requests::read_requests(kTrace, {.limit = 2000});
  const prefix::PrefixTree tree(trace);
  const std::vector<double> seconds = depth_seconds();
  for (const Golden& golden : kFirst) {
    INFO(golden.policy);
    CHECK(tokens(trace, slow::slow_runs(golden.slow, trace, tree, 1000, seconds)) == golden.at_1000);
    CHECK(tokens(trace, slow::slow_runs(golden.slow, trace, tree, 4000, seconds)) == golden.at_4000);
  }
}

}  // namespace kvsim::test_golden_hits
