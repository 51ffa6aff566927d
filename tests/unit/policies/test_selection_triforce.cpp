// TriForce's retrieval cache.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_triforce {

namespace {

struct SlowRule {
  std::size_t read, chunk, group, dim;
};

/// The buffer of `read` places as the authors fill it: chunks in order of their scores by the queries at
/// `asked`, whose last places the generated tokens take.
std::set<Position> slow_reads(const SelectedCache& cache, const std::vector<Position>& held, std::size_t lane,
                              std::size_t asked, const std::set<Position>& then, const SlowRule& rule) {
  const std::set<Position> now(cache.slots().begin(), cache.slots().end());
  std::vector<std::pair<double, std::size_t>> chunks;
  for (std::size_t first = 0; first < held.size(); first += rule.chunk) {
    double score = 0, count = 0;
    for (std::size_t i = first; i < std::min(first + rule.chunk, held.size()); ++i) {
      if (!then.contains(held[i])) continue;
      count += 1;
      for (std::size_t head = lane * rule.group; head < (lane + 1) * rule.group; ++head)
        score += cache.logit(asked, static_cast<std::size_t>(held[i]), head);
    }
    chunks.emplace_back(first == 0 ? 1e300 : (count > 0 ? score / count : -1e300), first);
  }
  std::sort(chunks.rbegin(), chunks.rend());
  std::vector<Position> buffer, generated;
  for (const auto& [score, first] : chunks)
    for (std::size_t i = first; i < std::min(first + rule.chunk, held.size()); ++i)
      if (now.contains(held[i])) buffer.push_back(held[i]);
  for (const Position position : now)
    if (!std::binary_search(held.begin(), held.end(), position)) generated.push_back(position);
  std::reverse(generated.begin(), generated.end());
  std::vector<Position> all = generated;
  all.insert(all.end(), buffer.begin(), buffer.end());
  if (all.size() > rule.read) all.resize(rule.read);
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("triforce: a worked example", "[triforce]") {
  // Chunks of two keys of one component: means 0, 2, 5, 1, 3, 4. The last prompt query is 1, so the order is
  // the first chunk, then the third, the sixth, the fifth, the second, the fourth. Of six places the first
  // generated token takes the last, which is position 11.
  SelectedShape shape{.selection = "triforce(read=6,chunk=2)", .prompt = 12, .dim = 1, .length = 20};
  shape.keys = {0, 0, 2, 2, 4, 6, 1, 1, 3, 3, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0};
  shape.queries.assign(20, -9);
  shape.queries[11] = 1;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{0, 1, 4, 5, 10, 12});
  cache.append();
  CHECK(cache.read() == std::set<Position>{0, 1, 4, 5, 12, 13});
  for (int step = 0; step < 5; ++step) cache.append();
  CHECK(cache.read() == std::set<Position>{13, 14, 15, 16, 17, 18});
  CHECK(cache.index_bits() == 0);
  CHECK(cache.index_bits_read() == 0);

  // Chosen anew at the second generated token, by a query that prefers small means: the second chunk
  // follows the fourth.
  shape.selection = "triforce(read=8,chunk=2,rebuild=2)";
  SelectedCache again(shape);
  again.append();
  CHECK(again.read() == std::set<Position>{0, 1, 4, 5, 8, 10, 11, 12});
  CHECK(again.index_bits_read() == 0);
  again.append();
  CHECK(again.read() == std::set<Position>{0, 1, 2, 3, 6, 7, 12, 13});
  CHECK(again.index_bits_read() == 12 * 16);
}

TEST_CASE("triforce: reads what the authors' buffer holds, whatever is evicted", "[triforce]") {
  for (const std::size_t every : {1, 3})
    for (const std::size_t rebuild : {0, 5}) {
      SelectedCache cache({.selection = "triforce(read=23,chunk=4,rebuild=" + std::to_string(rebuild) + ")",
                           .prompt = 151,
                           .n_lanes = 2,
                           .dim = 9,
                           .group = 3,
                           .every = every});
      const std::vector<Position> held = cache.slots();
      std::set<Position> then(held.begin(), held.end());
      std::size_t asked = 150;
      for (std::size_t step = 1; step <= 60; ++step) {
        std::vector<std::size_t> victims;
        if (step >= 10) victims = {(step * 7) % cache.slots().size()};
        if (step >= 30) victims.push_back((victims[0] + 5) % cache.slots().size());
        cache.append(victims);
        if (rebuild > 0 && step % rebuild == 0) {
          asked = cache.position();
          then = {cache.slots().begin(), cache.slots().end()};
        }
        for (std::size_t head = 0; head < 6; ++head)
          CHECK(cache.read(head) == slow_reads(cache, held, head / 3, asked, then, {23, 4, 3, 9}));
      }
    }
}

TEST_CASE("triforce: limits, and what it says that it reads", "[triforce]") {
  SelectedCache all({.selection = "triforce(read=100%)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  SelectedCache dense({.selection = "triforce(read=8,dense=6)", .prompt = 50});
  dense.append();
  CHECK(dense.read().size() == 51);
  SelectedCache one({.selection = "triforce(read=1)", .prompt = 50});
  one.append();
  CHECK(one.read() == std::set<Position>{50});

  SelectedCache cache({.selection = "triforce(read=20%,rebuild=4)", .prompt = 64, .n_lanes = 2, .group = 2});
  const CostShape shape{
      .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .prompt = 64};
  double bits = 0;
  for (int step = 0; step < 8; ++step) {
    cache.append();
    bits += static_cast<double>(cache.index_bits_read());
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    for (std::size_t head = 0; head < 4; ++head)
      CHECK(static_cast<double>(cache.read(head).size()) == count.head_tokens);
    CHECK(count.lane_tokens == count.head_tokens);
    CHECK(static_cast<double>(cache.index_bits()) == 8 * count.index_bytes);
  }
  // In the mean over steps.
  CHECK(bits / 8 == 8 * cache.part().reads(shape, 5, 72).index_bytes_read);
}

}  // namespace kvsim::policy::test::test_selection_triforce
