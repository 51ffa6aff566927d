// Tests keys with fewer channels: think.
#include <catch2/catch.hpp>
#include <set>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_think {

namespace {

/// The squared Frobenius norm of what a channel adds to the products of the last queries and all keys: the
/// sum over query heads, queries and keys of (q_c k_c)^2, term by term.
double slow_score(const RepresentedCache& cache, const CacheShape& shape, std::size_t rows, std::size_t lane,
                  std::size_t channel) {
  double sum = 0;
  for (std::size_t head = lane * shape.group; head < (lane + 1) * shape.group; ++head)
    for (std::size_t i = 0; i < shape.prompt; ++i)
      for (std::size_t j = 0; j < shape.prompt; ++j) {
        if (i + rows < shape.prompt) continue;
        const double product = static_cast<double>(cache.query(i, channel, head)) *
                               static_cast<double>(cache.recorded_key(j, channel, lane));
        sum += product * product;
      }
  return sum;
}

}  // namespace

TEST_CASE("think drops the channels that add least to the products of queries and keys") {
  const CacheShape shape{.representation = "think(ratio=0.4,window=5,rows=7)",
                         .prompt = 20,
                         .n_lanes = 2,
                         .dim = 10,
                         .group = 3,
                         .length = 60};
  RepresentedCache cache(shape);
  std::vector<std::set<std::size_t>> dropped(2);
  for (std::size_t lane = 0; lane < 2; ++lane)
    for (std::size_t c = 0; c < shape.dim; ++c) {
      std::size_t lower = 0;
      for (std::size_t other = 0; other < shape.dim; ++other)
        if (slow_score(cache, shape, 7, lane, other) < slow_score(cache, shape, 7, lane, c)) ++lower;
      if (lower < 4) dropped[lane].insert(c);
    }
  CHECK(dropped[0] != dropped[1]);
  for (std::size_t n = shape.prompt; n < 40; ++n) {
    for (std::size_t lane = 0; lane < 2; ++lane)
      for (std::size_t p = 0; p < n; ++p)
        for (std::size_t c = 0; c < shape.dim; ++c) {
          CAPTURE(n, lane, p, c);
          const bool gone = p + 5 < n && dropped[lane].contains(c);
          REQUIRE(cache.key(p, c, lane) == (gone ? 0 : cache.recorded_key(p, c, lane)));
        }
    CHECK(cache.exact_values() == n);
    CHECK(cache.ledger() == cache.closed_form());
    cache.append();
  }
  // The place of an evicted token in the window goes to the next that joins: what has been dropped does not
  // come back.
  cache.append({38});
  CHECK(cache.exact_keys() == 5);
  cache.append({35, 36});
  CHECK(cache.exact_keys() == 4);
  cache.append();
  CHECK(cache.exact_keys() == 5);
}

TEST_CASE("think by the keys alone drops the channels of least norm") {
  const CacheShape shape{.representation = "think(ratio=0.5,window=0,score=key)", .prompt = 40, .dim = 8};
  const RepresentedCache by_key(shape);
  for (std::size_t c = 0; c < 8; ++c) {
    const auto squares = [&](std::size_t channel) {
      double sum = 0;
      for (std::size_t p = 0; p < 40; ++p)
        sum += static_cast<double>(by_key.recorded_key(p, channel) * by_key.recorded_key(p, channel));
      return sum;
    };
    std::size_t lower = 0;
    for (std::size_t other = 0; other < 8; ++other) lower += squares(other) < squares(c) ? 1 : 0;
    CHECK((by_key.key(0, c) == 0) == (lower < 4));
  }
}

TEST_CASE("think at 0.4 saves a fifth of keys and values") {
  const StorageShape shape{8, 160, 160, 16};
  const Part think = *parse_composition("full+think(window=0)", builtin()).representation;
  const Ledger ledger = think.ledger(shape, 5000, 0);
  CHECK(static_cast<double>(ledger.exact + ledger.codes) /
            static_cast<double>(exact_ledger(shape, 5000).bits()) ==
        Approx(0.8));
  CHECK(ledger.indices == 8 * 160);
  // 128 channels lose 51.
  CHECK(think.ledger({1, 128, 128, 16}, 1, 0).codes == 77 * 16);
}

TEST_CASE(
    "think that drops nothing, or only beyond a window that holds everything, stores numbers as they come") {
  for (const char* text : {"think(ratio=0)", "think(ratio=0.7,window=100)"}) {
    RepresentedCache cache({.representation = text, .prompt = 50, .dim = 8, .length = 90});
    for (int i = 0; i < 30; ++i) cache.append();
    CHECK(cache.exact_keys() == 80);
    CHECK(cache.ledger() == cache.closed_form());
  }
  RepresentedCache nothing({.representation = "think(ratio=0)", .prompt = 50, .dim = 8});
  CHECK(nothing.ledger() == exact_ledger({1, 8, 8, 16}, 50));
}

}  // namespace kvsim::policy::test::test_representation_think
