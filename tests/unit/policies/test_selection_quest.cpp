// Quest: pages by the bound of their logits.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "policies/builtin.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_selection_quest {

namespace {

/// Every page of consecutive slots with its bound, in double precision.
std::vector<double> slow_bounds(const SelectedCache& cache, std::size_t page, std::size_t dim,
                                std::size_t head, std::size_t group) {
  std::vector<double> out;
  const std::vector<Position>& slots = cache.slots();
  for (std::size_t first = 0; first < slots.size(); first += page) {
    double bound = 0;
    for (std::size_t c = 0; c < dim; ++c) {
      const double q = static_cast<double>(cache.query(cache.position(), c, head));
      double best = -1e300;
      for (std::size_t slot = first; slot < std::min(first + page, slots.size()); ++slot)
        best = std::max(
            best, q * static_cast<double>(cache.key(static_cast<std::size_t>(slots[slot]), c, head / group)));
      bound += best;
    }
    out.push_back(bound);
  }
  return out;
}

}  // namespace

TEST_CASE("quest: a worked example", "[quest]") {
  // Pages of two keys with two components: bounds under q = (1, -1) are
  //   {(0,0),(0,1)}: 0 - 0 = 0;  {(3,3),(1,1)}: 3 - 1 = 2;  {(2,0),(0,5)}: 2 - 0 = 2;  {(4,6),(5,7)}: 5 - 6 =
  //   -1;
  //   {(0,0),(9,9)}: 9 - 0 = 9, although its tokens' logits are both 0.
  SelectedShape shape{.selection = "quest(read=6,page=2)", .prompt = 9, .dim = 2, .length = 10};
  shape.keys = {0, 0, 0, 1, 3, 3, 1, 1, 2, 0, 0, 5, 4, 6, 5, 7, 0, 0, 9, 9};
  shape.queries.assign(20, 0);
  shape.queries[18] = 1;
  shape.queries[19] = -1;
  SelectedCache cache(shape);
  cache.append();
  CHECK(cache.read() == std::set<Position>{2, 3, 4, 5, 8, 9});
  // Five pages of a minimum and a maximum of two 16-bit numbers.
  CHECK(cache.index_bits() == 5 * 2 * 2 * 16);
  CHECK(cache.index_bits_read() == cache.index_bits());
}

TEST_CASE("quest: pages are those of the highest bounds, and no logit exceeds its page's", "[quest]") {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const SelectedShape shape{.selection = "quest(read=20,page=4)",
                              .prompt = 61,
                              .n_lanes = 2,
                              .dim = 19,
                              .group = 3,
                              .seed = seed};
    SelectedCache cache(shape);
    for (int step = 0; step < 40; ++step) {
      // Tokens are appended, then replace others, one or several at a time.
      std::vector<std::size_t> victims;
      if (step >= 20) victims = {(static_cast<std::size_t>(step) * 7) % cache.slots().size()};
      if (step >= 30) victims.push_back((victims[0] + 5) % cache.slots().size());
      cache.append(victims);
      for (std::size_t head = 0; head < 6; ++head) {
        const std::vector<double> bounds = slow_bounds(cache, 4, 19, head, 3);
        for (std::size_t slot = 0; slot < cache.slots().size(); ++slot)
          CHECK(bounds[slot / 4] >=
                cache.logit(cache.position(), static_cast<std::size_t>(cache.slots()[slot]), head) - 1e-9);
        std::vector<std::size_t> order(bounds.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::sort(order.begin(), order.end(), [&](auto a, auto b) { return bounds[a] > bounds[b]; });
        std::set<Position> expected{static_cast<Position>(cache.position())};
        for (std::size_t i = 0; i < 5; ++i)
          for (std::size_t slot = 4 * order[i]; slot < std::min(4 * order[i] + 4, cache.slots().size());
               ++slot)
            expected.insert(cache.slots()[slot]);
        CHECK(cache.read(head) == expected);
      }
    }
  }
}

TEST_CASE("quest: limits", "[quest]") {
  SelectedCache all({.selection = "quest(read=100%,page=8)", .prompt = 50});
  all.append();
  CHECK(all.read().size() == 51);
  CHECK(all.index_bits_read() == 0);
  SelectedCache dense({.selection = "quest(read=16,page=8)", .prompt = 50, .layer = 1});
  dense.append();
  CHECK(dense.read().size() == 51);
  CHECK(dense.index_bits() == 0);
  // At least three pages.
  SelectedCache few({.selection = "quest(read=1,page=8)", .prompt = 63});
  few.append();
  CHECK(few.read().size() >= 24);
  CHECK(few.read().size() <= 25);
  // The last page is always there with last=true, and it counts.
  SelectedCache last({.selection = "quest(read=24,page=8,last=true)", .prompt = 63});
  last.append();
  CHECK(last.read().size() == 24);
  for (Position position = 56; position < 64; ++position) CHECK(last.read().contains(position));
}

TEST_CASE("quest: an eighth of 64K is read with 4096 tokens in pages of 16", "[quest]") {
  // Card of the paper: 1/16 for the bounds and 4096 / 65536 of the tokens, of keys and values together.
  const Part part = *parse_composition("full+quest(read=4096)", builtin()).selection;
  const CostShape shape{.n_layers = 32, .query_heads = 32, .kv_heads = 32, .head_dim = 128, .value_dim = 128};
  const ReadCount count = part.reads(shape, 2, 65536);
  const double token_bytes = 32 * (128 + 128) * 2;
  const double read = count.head_tokens * token_bytes + count.index_bytes_read;
  CHECK(read / (65536 * token_bytes) == 0.125);
  CHECK(part.reads(shape, 1, 65536).head_tokens == 65536);
}

TEST_CASE("what selections say that they read is what they read", "[selection]") {
  for (const std::string selection :
       {"quest(read=16,page=4)", "top_tokens(read=13)", "recent_tokens(read=13)", "random_tokens(read=30%)",
        "tidal(read=13)", "sparq(read=13,channels=3)", "sparq(read=13,copy=false)",
        "double_sparsity(read=13,group_factor=2)", "double_sparsity(read=13,order=k,bits=16)",
        "pqcache(read=13,sinks=4,bits=3)"}) {
    SelectedCache cache({.selection = selection, .prompt = 64, .n_lanes = 2, .group = 2});
    for (int step = 0; step < 8; ++step) cache.append();
    const CostShape shape{.n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4};
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    INFO(selection);
    for (std::size_t head = 0; head < 4; ++head) {
      // The query's own token is read beside what is chosen.
      CHECK(static_cast<double>(cache.read(head).size()) >= count.head_tokens);
      CHECK(static_cast<double>(cache.read(head).size()) <= count.head_tokens + 1);
    }
    CHECK(static_cast<double>(cache.index_bits()) == 8 * count.index_bytes);
    CHECK(static_cast<double>(cache.index_bits_read()) == 8 * count.index_bytes_read);
  }
}

TEST_CASE("what selections say that they read in one piece, they do", "[selection]") {
  for (const std::string selection :
       {"quest(read=32,page=2)", "quest(read=16,page=8)", "shadowkv(read=32,chunk=4,outliers=2,local=2)",
        "triforce(read=32,chunk=4)", "rekv(read=32,block=4)", "recent_tokens(read=13,sinks=0)",
        "recent_tokens(read=13)", "retrieval(read=3,sinks=8,recent=8,index=flat)", "top_tokens(read=20)"}) {
    SelectedCache cache({.selection = selection, .prompt = 96, .n_lanes = 2, .group = 2});
    for (int step = 0; step < 8; ++step) cache.append();
    const CostShape shape{
        .n_layers = 9, .query_heads = 4, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .prompt = 96};
    const ReadCount count = cache.part().reads(shape, 5, cache.slots().size());
    INFO(selection);
    CHECK(count.run_tokens >= 1);
    CHECK(count.run_tokens <= count.lane_tokens);
    for (std::size_t lane = 0; lane < 2; ++lane) {
      std::set<Position> read = cache.read(2 * lane);
      for (const Position position : cache.read(2 * lane + 1)) read.insert(position);
      std::size_t pieces = 0;
      Position before = -2;
      for (const Position position : read) {
        pieces += position != before + 1 ? 1 : 0;
        before = position;
      }
      // The query's own token may stand alone.
      CHECK(static_cast<double>(pieces) <= count.lane_tokens / count.run_tokens + 1);
    }
  }
}

}  // namespace kvsim::policy::test::test_selection_quest
