// ReKV: blocks that a question asks for.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_rekv {

namespace {

const std::vector<float> kInvFreq{0.5F, 0.03F};
constexpr std::size_t kDim = 6;

/// Undoes the rotation of the pairs (i, i + 2).
std::vector<double> still(std::vector<double> row, std::size_t position) {
  for (std::size_t i = 0; i < kInvFreq.size(); ++i) {
    const double angle = -static_cast<double>(static_cast<float>(position) * kInvFreq[i]);
    const double x = row[i], y = row[i + 2];
    row[i] = x * std::cos(angle) - y * std::sin(angle);
    row[i + 2] = y * std::cos(angle) + x * std::sin(angle);
  }
  return row;
}

struct SlowRule {
  std::size_t block, sinks, local, groups, together, lanes, group;
};

/// Which tokens of `held` the question at positions `asked` leaves out, head by head.
std::set<Position> slow_left(const SelectedCache& cache, const std::vector<Position>& held,
                             const std::vector<std::size_t>& asked, const SlowRule& rule) {
  const std::size_t blocks = (held.size() - rule.sinks - rule.local) / rule.block;
  std::vector<double> scores(blocks);
  for (std::size_t head = 0; head < rule.lanes * rule.group; ++head) {
    std::vector<double> question(kDim);
    for (const std::size_t position : asked) {
      std::vector<double> query;
      for (std::size_t c = 0; c < kDim; ++c)
        query.push_back(static_cast<double>(cache.query(position, c, head)));
      query = still(query, position);
      for (std::size_t c = 0; c < kDim; ++c) question[c] += query[c] / static_cast<double>(asked.size());
    }
    for (std::size_t i = 0; i < blocks * rule.block; ++i) {
      const auto position = static_cast<std::size_t>(held[rule.sinks + i]);
      std::vector<double> key;
      for (std::size_t c = 0; c < kDim; ++c)
        key.push_back(static_cast<double>(cache.key(position, c, head / rule.group)));
      key = still(key, position);
      for (std::size_t c = 0; c < kDim; ++c)
        scores[i / rule.block] += question[c] * key[c] / static_cast<double>(rule.block);
    }
  }
  std::vector<std::pair<double, std::size_t>> groups;
  for (std::size_t first = 0; first < blocks; first += rule.together) {
    double sum = 0, count = 0;
    for (std::size_t block = first; block < std::min(first + rule.together, blocks); ++block, ++count)
      sum += scores[block];
    groups.emplace_back(sum / count, first);
  }
  std::sort(groups.rbegin(), groups.rend());
  std::set<Position> left;
  for (std::size_t g = rule.groups; g < groups.size(); ++g)
    for (std::size_t block = groups[g].second; block < std::min(groups[g].second + rule.together, blocks);
         ++block)
      for (std::size_t i = 0; i < rule.block; ++i) left.insert(held[rule.sinks + block * rule.block + i]);
  return left;
}

}  // namespace

TEST_CASE("rekv: a worked example", "[rekv]") {
  // A sink, blocks of two keys with means 2, -1, 4, 3, and a token behind them. Two query heads ask with 1
  // and -3, together -2: the second block is the best, then the first. The next query asks for the opposite,
  // but the blocks stay.
  SelectedShape shape{
      .selection = "rekv(read=4,block=2,sinks=1)", .prompt = 10, .dim = 1, .group = 2, .length = 12};
  shape.keys = {9, 1, 3, -1, -1, 4, 4, 2, 4, 0, 0, 0};
  shape.queries.assign(24, 0);
  shape.queries[20] = 1;
  shape.queries[21] = -3;
  shape.queries[22] = 9;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read(0) == std::set<Position>{0, 1, 2, 3, 4, 9, 10});
  CHECK(cache.read(1) == cache.read(0));
  CHECK(cache.index_bits() == 4 * 16);
  CHECK(cache.index_bits_read() == 4 * 16);
  cache.append();
  CHECK(cache.read(0) == std::set<Position>{0, 1, 2, 3, 4, 9, 10, 11});
  CHECK(cache.index_bits_read() == 0);
  // With a question of two tokens the mean query is (-2 + 9) / 2 at the second: the last blocks.
  shape.selection = "rekv(read=4,block=2,sinks=1,question=2)";
  SelectedCache longer(shape);
  longer.append();
  CHECK(longer.read(0) == std::set<Position>{0, 1, 2, 3, 4, 9, 10});
  longer.append();
  CHECK(longer.read(0) == std::set<Position>{0, 5, 6, 7, 8, 9, 10, 11});
}

TEST_CASE("rekv: reads what the definition says, whatever is evicted", "[rekv]") {
  for (const std::size_t every : {1, 2})
    for (const std::size_t together : {1, 3}) {
      SelectedCache cache({.selection = "rekv(read=24,block=4,sinks=3,local=5,question=7,together=" +
                                        std::to_string(together) + ")",
                           .prompt = 151,
                           .n_lanes = 2,
                           .dim = kDim,
                           .group = 3,
                           .every = every,
                           .inv_freq = kInvFreq});
      const std::vector<Position> held = cache.slots();
      std::vector<std::size_t> asked;
      for (std::size_t step = 1; step <= 40; ++step) {
        std::vector<std::size_t> victims;
        if (step >= 5) victims = {(step * 7) % cache.slots().size()};
        if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
        cache.append(victims);
        if (step <= 7) asked.push_back(cache.position());
        const std::set<Position> left =
            slow_left(cache, held, asked, {4, 3, 5, 24 / (4 * together), together, 2, 3});
        std::set<Position> expected;
        for (const Position position : cache.slots())
          if (!left.contains(position)) expected.insert(position);
        for (std::size_t head = 0; head < 6; ++head) CHECK(cache.read(head) == expected);
        CHECK((cache.index_bits_read() > 0) == (step <= 7));
      }
    }
}

TEST_CASE("rekv: limits, and what it says that it reads", "[rekv]") {
  for (const std::string together : {"1", "7"}) {
    SelectedCache all({.selection = "rekv(read=100%,block=4,together=" + together + ")", .prompt = 50});
    all.append();
    CHECK(all.read().size() == 51);
    CHECK(all.index_bits_read() == 0);
  }
  SelectedCache dense({.selection = "rekv(read=8,block=4,dense=6)", .prompt = 50});
  dense.append();
  CHECK(dense.read().size() == 51);
  // Less than a block is read: sinks and what is behind the blocks remain.
  SelectedCache none({.selection = "rekv(read=3,block=4,sinks=2,local=3)", .prompt = 51});
  none.append();
  CHECK(none.read() == std::set<Position>{0, 1, 46, 47, 48, 49, 50, 51});

  SelectedCache cache(
      {.selection = "rekv(read=25%,block=4,sinks=2)", .prompt = 103, .n_lanes = 2, .group = 2});
  const CostShape shape{
      .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .prompt = 103};
  cache.append();
  const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
  for (std::size_t head = 0; head < 4; ++head)
    CHECK(static_cast<double>(cache.read(head).size()) == count.head_tokens);
  CHECK(count.lane_tokens == count.head_tokens);
  CHECK(static_cast<double>(cache.index_bits()) == 8 * count.index_bytes);
  CHECK(parse_composition("full+rekv", builtin()).layer_unit());
}

TEST_CASE("rekv: an hour of video in Qwen2-7B", "[rekv]") {
  // 1,800 frames at half a frame per second; 64 of them are 12,544 tokens, 719 MB of 28 layers.
  const CostShape shape{.n_layers = 28,
                        .query_heads = 28,
                        .kv_heads = 4,
                        .head_dim = 128,
                        .value_dim = 128,
                        .prompt = 1800 * 196};
  const Part part = *parse_composition("full+rekv", builtin()).selection;
  const ReadCount count = part.reads(shape, 0, 1800 * 196);
  CHECK(count.head_tokens == 12544);
  CHECK(count.lane_tokens * 28 * 4 * (128 + 128) * 2 == 719323136);
  CHECK(count.index_bytes == 1800 * 4 * 128 * 2);
}

}  // namespace kvsim::policy::test::test_selection_rekv
