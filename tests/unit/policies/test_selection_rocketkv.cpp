// RocketKV's hybrid sparse attention.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_rocketkv {

namespace {

/// The authors' steps, token by token, in double precision: keys times signs, maxima of pages, products of
/// the largest components, softmax, mean over the group, the best.
std::vector<std::pair<double, Position>> slow_scores(const SelectedCache& cache, std::size_t page,
                                                     std::size_t components, std::size_t lane,
                                                     std::size_t group, std::size_t dim) {
  const std::vector<Position>& slots = cache.slots();
  const auto query = [&](std::size_t head, std::size_t c) {
    return static_cast<double>(cache.query(cache.position(), c, lane * group + head));
  };
  std::vector<double> sign(dim), size(dim);
  for (std::size_t c = 0; c < dim; ++c) {
    for (std::size_t head = 0; head < group; ++head) {
      sign[c] += query(head, c);
      size[c] += std::abs(query(head, c)) / static_cast<double>(group);
    }
    sign[c] = sign[c] > 0 ? 1 : -1;
  }
  std::vector<std::size_t> order(dim);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return size[a] > size[b]; });
  order.resize(components);
  std::vector<std::pair<double, Position>> out;
  for (const Position position : slots) out.emplace_back(0, position);
  for (std::size_t head = 0; head < group; ++head) {
    double part = 0, whole = 0, sum = 0;
    for (std::size_t c = 0; c < dim; ++c) whole += std::abs(query(head, c));
    for (const std::size_t c : order) part += std::abs(query(head, c));
    std::vector<double> weights;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      const std::size_t first = slot / page * page;
      double product = 0;
      for (const std::size_t c : order) {
        double most = -1e300;
        for (std::size_t other = first; other < std::min(first + page, slots.size()); ++other)
          most = std::max(most, sign[c] * static_cast<double>(
                                              cache.key(static_cast<std::size_t>(slots[other]), c, lane)));
        product += sign[c] * query(head, c) * most;
      }
      weights.push_back(std::exp(product * SelectedCache::kScale / std::sqrt(part / whole)));
      sum += weights.back();
    }
    for (std::size_t slot = 0; slot < slots.size(); ++slot) out[slot].first += weights[slot] / sum;
  }
  return out;
}

}  // namespace

TEST_CASE("rocketkv: a worked example", "[rocketkv]") {
  // 16 tokens held and a budget of 4: c = 4, pages of two, and 2 * 2 / 4 = 1 of two components. Of q = (-3,
  // 1) it is the first, in which pages stand for their least, since it is negative: that is -5 in the third
  // page and -4 in the sixth, else 0. Two tokens are read: those of the third page. (The second component
  // would speak for the first page.)
  SelectedShape shape{.selection = "rocketkv(read=4)", .prompt = 16, .dim = 2, .length = 17};
  shape.keys.assign(34, 0);
  shape.keys[2 * 1 + 1] = 99;
  shape.keys[2 * 4] = -5;
  shape.keys[2 * 5] = 7;
  shape.keys[2 * 10] = -4;
  shape.keys[2 * 11] = -4;
  shape.queries.assign(34, 0);
  shape.queries[32] = -3;
  shape.queries[33] = 1;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{4, 5, 16});
  // Nine pages of a least and a largest of two components; one bound of one component of each is read.
  CHECK(cache.index_bits() == 9 * 2 * 2 * 16);
  CHECK(cache.index_bits_read() == 9 * 16);
}

TEST_CASE("rocketkv: reads what the authors' steps give, whatever is evicted", "[rocketkv]") {
  struct Case {
    std::size_t read, page, components;
  };
  // 150 tokens, 12 components: c = 10, 3.75, 2 and 1.5.
  for (const Case& of : {Case{15, 4, 4}, Case{40, 2, 6}, Case{75, 2, 12}, Case{100, 1, 8}}) {
    SelectedCache cache({.selection = "rocketkv(read=" + std::to_string(of.read) + ")",
                         .prompt = 150,
                         .n_lanes = 2,
                         .dim = 12,
                         .group = 3});
    for (std::size_t step = 1; step <= 40; ++step) {
      std::vector<std::size_t> victims;
      if (step >= 10) victims = {(step * 7) % cache.slots().size()};
      if (step >= 20) victims.push_back((victims[0] + 5) % cache.slots().size());
      cache.append(victims);
      for (std::size_t head = 0; head < 6; ++head) {
        const std::set<Position>& read = cache.read(head);
        CHECK(read.size() - of.read / 2 <= 1);  // the query's own token is read beside them
        CHECK(read == cache.read(head / 3 * 3));
        double least = 1e300, most_left = 0;
        for (const auto& [score, position] : slow_scores(cache, of.page, of.components, head / 3, 3, 12)) {
          if (!read.contains(position))
            most_left = std::max(most_left, score);
          else if (static_cast<std::size_t>(position) != cache.position())
            least = std::min(least, score);
        }
        // Tokens of a page have the same score.
        CHECK(least >= most_left * (1 - 1e-6));
      }
    }
  }
}

TEST_CASE("rocketkv: limits, and what it says that it reads", "[rocketkv]") {
  SelectedCache all({.selection = "rocketkv(read=100%)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  CHECK(all.index_bits_read() == 0);
  SelectedCache dense({.selection = "rocketkv(read=8,dense=6)", .prompt = 50});
  dense.append();
  CHECK(dense.read().size() == 51);
  SelectedCache one({.selection = "rocketkv(read=1)", .prompt = 50});
  one.append();
  CHECK(one.read() == std::set<Position>{50});

  for (const std::string read : {"16", "60", "5%"}) {
    SelectedCache cache(
        {.selection = "rocketkv(read=" + read + ")", .prompt = 100, .n_lanes = 2, .dim = 32, .group = 2});
    for (int step = 0; step < 9; ++step) cache.append();
    const CostShape shape{
        .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 32, .value_dim = 32, .prompt = 100};
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    for (std::size_t head = 0; head < 4; ++head) {
      CHECK(static_cast<double>(cache.read(head).size()) >= count.head_tokens);
      CHECK(static_cast<double>(cache.read(head).size()) <= count.head_tokens + 1);
    }
    CHECK(count.lane_tokens == count.head_tokens);
    CHECK(static_cast<double>(cache.index_bits()) == 8 * count.index_bytes);
    CHECK(static_cast<double>(cache.index_bits_read()) == 8 * count.index_bytes_read);
  }
}

TEST_CASE("rocketkv: tokens and index are read as much as the budget says", "[rocketkv]") {
  const Composition system = parse_composition("rocketkv(read=1024)", builtin());
  CHECK(system.eviction.spec->name == "snapkv");
  CHECK(system.eviction.params.text().find("pool=max:63") != std::string::npos);
  // c = 16: pages of four, 128 * 4 / 16 = 32 components.
  const CostShape shape{
      .n_layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .value_dim = 128, .prompt = 16384};
  const ReadCount count = system.selection->reads(shape, 0, 16384);
  CHECK(count.head_tokens == 512);
  const double token_bytes = 8 * (128 + 128) * 2;
  CHECK(count.head_tokens * token_bytes + count.index_bytes_read == 1024 * token_bytes);
}

}  // namespace kvsim::policy::test::test_selection_rocketkv
