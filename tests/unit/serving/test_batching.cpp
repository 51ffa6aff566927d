#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <list>
#include <map>
#include <numeric>
#include <set>

#include "sim/base/error.hpp"
#include "sim/requests/serving/batching/batch_plan.hpp"
#include "sim/requests/serving/batching/batch_run.hpp"
#include "sim/requests/serving/batching/prefix_groups.hpp"
#include "tests/unit/serving/made_requests.hpp"

namespace kvsim::serving::test_batching {
namespace {

using Lengths = std::vector<std::uint64_t>;

TEST_CASE("Prompts are packed into rows of the longest: by hand", "[serving]") {
  const Packing packing = pack(Lengths{3, 10, 4, 6, 7, 1});
  // In order 10 | 7 | 6 + 4 | 7 + 3: rows 10; 7, 3; 6, 4; 1.
  CHECK(packing.rows == std::vector<std::vector<std::uint32_t>>{{1}, {4, 0}, {3, 2}, {5}});
  CHECK(packing.padded_tokens() == 60);
  CHECK(packing.packed_tokens() == 40);
  CHECK(packing.tokens == 31);
  CHECK(pack(Lengths{5, 5, 5}).packed_tokens() == 15);  // equal prompts: nothing to gain
  CHECK_THROWS_AS(pack(Lengths{}), Error);
  CHECK_THROWS_AS(pack(Lengths{3, 0}), Error);
}

/// The fewest rows, by trying every row for every prompt.
std::size_t fewest_rows(const Lengths& lengths, std::size_t at, Lengths& rows, std::uint64_t row,
                        std::size_t best) {
  if (rows.size() >= best) return best;
  if (at == lengths.size()) return rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] + lengths[at] > row) continue;
    rows[i] += lengths[at];
    best = fewest_rows(lengths, at + 1, rows, row, best);
    rows[i] -= lengths[at];
  }
  rows.push_back(lengths[at]);
  best = fewest_rows(lengths, at + 1, rows, row, best);
  rows.pop_back();
  return best;
}

TEST_CASE("Packing keeps every prompt once, within first-fit's bound of the fewest rows", "[serving]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Lengths lengths;
    for (std::uint64_t i = 0; i < 2 + pick(combine({seed, 1}), 8); ++i)
      lengths.push_back(1 + pick(combine({seed, 2, i}), 30));
    const Packing packing = pack(lengths);
    std::set<std::uint32_t> seen;
    for (const auto& row : packing.rows) {
      std::uint64_t sum = 0;
      for (const std::uint32_t prompt : row) {
        sum += lengths[prompt];
        REQUIRE(seen.insert(prompt).second);
      }
      REQUIRE(sum <= packing.longest);
    }
    REQUIRE(seen.size() == lengths.size());
    Lengths rows;
    const std::size_t fewest = fewest_rows(lengths, 0, rows, packing.longest, lengths.size() + 1);
    REQUIRE(packing.rows.size() >= fewest);
    REQUIRE(9 * packing.rows.size() <= 11 * fewest + 6);  // Dosa 2007
  }
}

TEST_CASE("Groups of one prefix each: a grandchild is worth forking where it is long and often asked for",
          "[serving]") {
  // Blocks of 10 tokens. All begin with block 1; three of five go on with 2, 3.
  std::vector<Made> made{{0, 30, 1, {1, 2, 3}},
                         {0, 40, 1, {1, 2, 3, 4}},
                         {0, 40, 9, {1, 2, 3, 5}},
                         {0, 20, 100, {1, 6}},
                         {0, 20, 1, {1, 7}}};
  const auto trace = made_trace(made, 10);
  const prefix::PrefixTree tree(trace);
  const PrefixGroups groups = prefix_groups(trace, tree);
  // One group of five saves 4 * 10. Forked, three save 2 * 30 and two save 10.
  CHECK(groups.saved_tokens == 70);
  CHECK(groups.first_level_saving == 40);
  CHECK(groups.tree_saving == 4 * 10 + 2 * 20);
  CHECK(groups.prompt_tokens == 150);
  REQUIRE(groups.groups.size() == 2);
  // 101 generated for 30 computed come before 11 for 50.
  CHECK(groups.groups[0].requests == std::vector<std::uint32_t>{3, 4});
  CHECK(groups.groups[0].prefix_tokens == 10);
  CHECK(groups.groups[0].computed_tokens == 30);
  CHECK(groups.groups[1].requests == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(groups.groups[1].prefix_tokens == 30);
  CHECK(groups.groups[1].computed_tokens == 50);
}

requests::RequestTrace random_batch(std::uint64_t seed, std::size_t n) {
  std::vector<Made> made;
  for (std::uint64_t i = 0; i < n; ++i) {
    Made request{0, 0, static_cast<std::uint32_t>(1 + pick(combine({seed, i, 3}), 50))};
    requests::BlockId id = 0;
    const std::uint64_t blocks = 1 + pick(combine({seed, i, 1}), 5);
    for (std::uint64_t block = 0; block < blocks; ++block) {
      id = combine({id, block, pick(combine({seed, i, 10 + block}), 2)});
      request.blocks.push_back(id);
    }
    request.prompt = static_cast<std::uint32_t>(blocks * 10);
    made.push_back(request);
  }
  return made_trace(made, 10);
}

/// The most that any cut into groups saves: every way to give each request one of its own prefixes.
std::uint64_t most_saved(const requests::RequestTrace& trace) {
  using Prefix = std::vector<requests::BlockId>;
  std::uint64_t best = 0;
  std::map<Prefix, std::uint64_t> count;
  const std::function<void(std::size_t)> next = [&](std::size_t i) {
    if (i == trace.requests.size()) {
      std::uint64_t saved = 0;
      for (const auto& [prefix, requests] : count)
        if (requests > 0) saved += (requests - 1) * prefix.size() * trace.block_tokens;
      best = std::max(best, saved);
      return;
    }
    const auto blocks = trace.prompt_blocks(trace.requests[i]);
    for (std::size_t length = 1; length <= blocks.size(); ++length) {
      const Prefix prefix(blocks.begin(), blocks.begin() + static_cast<long>(length));
      ++count[prefix];
      next(i + 1);
      --count[prefix];
    }
  };
  next(0);
  return best;
}

TEST_CASE("No cut into groups of one prefix saves more", "[serving]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const auto trace = random_batch(seed, 7);
    const prefix::PrefixTree tree(trace);
    const PrefixGroups groups = prefix_groups(trace, tree);
    REQUIRE(groups.saved_tokens == most_saved(trace));
    REQUIRE(groups.first_level_saving <= groups.saved_tokens);
    REQUIRE(groups.saved_tokens <= groups.tree_saving);
    std::uint64_t computed = 0;
    std::set<std::uint32_t> seen;
    for (const PrefixGroup& group : groups.groups) {
      computed += group.computed_tokens;
      for (const std::uint32_t request : group.requests) REQUIRE(seen.insert(request).second);
    }
    REQUIRE(seen.size() == trace.requests.size());
    REQUIRE(computed == groups.prompt_tokens - groups.saved_tokens);
  }
}

/// Tokens of prompts found by a cache of `blocks` blocks, the longest unused of which leaves first, when
/// requests come in this order.
std::uint64_t lru_saving(const requests::RequestTrace& trace, const std::vector<std::uint32_t>& order,
                         std::size_t blocks) {
  std::list<requests::BlockId> cache;
  std::uint64_t saved = 0;
  for (const std::uint32_t i : order) {
    const auto prompt = trace.prompt_blocks(trace.requests[i]);
    std::size_t run = 0;
    while (run < prompt.size() && std::find(cache.begin(), cache.end(), prompt[run]) != cache.end()) ++run;
    saved += run * trace.block_tokens;
    for (std::size_t block = prompt.size(); block-- > 0;) {
      cache.remove(prompt[block]);
      cache.push_back(prompt[block]);
    }
    while (cache.size() > blocks) cache.pop_front();
  }
  return saved;
}

TEST_CASE("A least recently used cache saves less of the same batch as it came than of its groups",
          "[serving]") {
  const auto trace = random_batch(5, 200);
  const prefix::PrefixTree tree(trace);
  const PrefixGroups groups = prefix_groups(trace, tree);
  std::vector<std::uint32_t> came(200), grouped;
  std::iota(came.begin(), came.end(), 0u);
  for (const PrefixGroup& group : groups.groups)
    grouped.insert(grouped.end(), group.requests.begin(), group.requests.end());
  // Room for the longest prompt and two blocks more.
  CHECK(lru_saving(trace, came, 7) < lru_saving(trace, grouped, 7));
  CHECK(lru_saving(trace, came, 7) < groups.saved_tokens);
}

TEST_CASE("Common blocks are read once: the table of Hydragen's microbenchmark", "[serving]") {
  // Eight query heads, one of keys and values, of 128 numbers of two bytes: 512 bytes a token.
  struct Row {
    std::uint32_t batch, prefix;
    std::uint64_t suffix;
    double separate_mb, shared_mb, ratio;
  };
  for (const Row& row :
       {Row{512, 1024, 0, 268.4, 0.524, 512}, Row{512, 1024, 64, 285.2, 17.30, 16.48},
        Row{512, 1024, 512, 402.7, 134.7, 2.99}, Row{1024, 2048, 64, 1107.3, 34.60, 32.0},
        Row{2048, 4096, 128, 4429.2, 136.3, 32.5}, Row{4096, 8192, 512, 18254, 1077.9, 16.93}}) {
    std::vector<Made> made;
    std::vector<std::uint32_t> running;
    for (std::uint32_t i = 0; i < row.batch; ++i) {
      made.push_back({0, row.prefix, 1, {1}});
      running.push_back(i);
    }
    const auto trace = made_trace(made, row.prefix);
    const prefix::PrefixTree tree(trace);
    const SharedReads reads = SharedReader(trace, tree).count(running, row.suffix);
    CHECK(512e-6 * static_cast<double>(reads.separate_tokens) == Approx(row.separate_mb).epsilon(1e-3));
    CHECK(512e-6 * static_cast<double>(reads.shared_tokens) == Approx(row.shared_mb).epsilon(1e-3));
    CHECK(reads.ratio() == Approx(row.ratio).epsilon(1e-3));
    // Without a suffix the common part has the result itself.
    CHECK(reads.partials == (row.suffix > 0 ? 2 * row.batch : 0));
    CHECK(reads.levels == (row.suffix > 0 ? 2 : 1));
  }
}

TEST_CASE("Shared reads of a tree by hand", "[serving]") {
  const auto trace = made_trace({{0, 30, 1, {1, 2, 3}}, {0, 25, 1, {1, 2, 9}}, {0, 12, 1, {1, 7}}}, 10);
  const prefix::PrefixTree tree(trace);
  const std::uint32_t running[] = {0, 1, 2};
  SharedReader reader(trace, tree);
  const SharedReads reads = reader.count(running, 5);
  CHECK(reads.separate_tokens == 30 + 25 + 12 + 15);
  CHECK(reads.shared_tokens == 10 + 10 + 10 + 5 + 2 + 15);
  // The first two: block 1, block 2, and the rest alone; the third: block 1, and the rest.
  CHECK(reads.partials == 3 + 3 + 2);
  CHECK(reads.levels == 3);
  // One alone shares nothing, whatever was counted before.
  const SharedReads one = reader.count(std::span(running).last(1), 5);
  CHECK(one.shared_tokens == 12 + 5);
  CHECK(one.partials == 0);
}

}  // namespace
}  // namespace kvsim::serving::test_batching
