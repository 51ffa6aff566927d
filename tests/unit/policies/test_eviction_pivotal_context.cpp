#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_pivotal_context {

using Positions = std::vector<Position>;

TEST_CASE("newer rows of the recent part count more, worked by hand") {
  Run run = blank_run({.prompt = 8, .decode = 2, .n_lanes = 1, .group = 1});
  // recent_rows 0.25 of 8: rows 6 and 7, weights 1 and 1.2; positions 5, 6, 7 are kept. Before them: 0 has
  // 0.5 + 1.2 * 0.1 = 0.62, 1 has 0.1 + 1.2 * 0.45 = 0.64, the plain sums are 0.6 and 0.55.
  run.p(0, 6, 0) = 0.5F, run.p(0, 7, 0) = 0.1F;
  run.p(0, 6, 1) = 0.1F, run.p(0, 7, 1) = 0.45F;
  run.p(0, 5, 2) = 1;  // not a recent row
  const std::string policy = "pivotal_context(sinks=0,recent_rows=0.25";
  CHECK(feed(policy + ")", run, 4).kept == Positions{1, 5, 6, 7});
  CHECK(feed(policy + ",newest=1)", run, 4).kept == Positions{0, 5, 6, 7});
  CHECK(feed(policy + ")", run, 4).held.back() == Positions{1, 5, 6, 7, 8, 9});
  // A budget smaller than the recent part keeps the newest positions; sinks come first.
  CHECK(feed(policy + ")", run, 2).kept == Positions{6, 7});
  CHECK(feed("pivotal_context(sinks=1,recent_rows=0.25)", run, 2).kept == Positions{0, 7});
}

TEST_CASE("the pivotal context agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const int lanes = 1 + static_cast<int>(seed % 2);
    const Run run = random_run({.prompt = 10 + seed, .decode = 2, .n_lanes = lanes, .group = 2}, seed);
    const std::size_t recent = std::max<std::size_t>(run.prompt / 5, 1);
    const auto score = [=](const Run& r, const Attended&, Position j) {
      double sum = 0;
      for (std::size_t k = 0; k < recent; ++k) {
        const double weight =
            recent == 1 ? 1 : 1 + 0.2 * static_cast<double>(k) / static_cast<double>(recent - 1);
        sum += weight * mean_row(r, r.prompt - recent + k, j);
      }
      return sum;
    };
    for (std::size_t budget = 5; budget < run.prompt; ++budget) {
      const SlowRule rule{
          .score = score, .sinks = 4, .window = std::min(recent + 1, budget - 4), .decodes = false};
      CAPTURE(seed, budget);
      CHECK(feed("pivotal_context", run, budget).held == feed_slowly(rule, run, budget).held);
    }
  }
}

TEST_CASE("rows of equal weight are sums over the last rows") {
  const Run run = random_run({.prompt = 40, .decode = 1, .n_lanes = 1, .group = 2}, 3, 2);
  for (std::size_t budget = 10; budget < 42; ++budget)
    CHECK(feed("pivotal_context(newest=1,sinks=0,unit=lane)", run, budget).kept ==
          feed("h2o(recent=0,rows=8,window=9,decode=false)", run, budget).kept);
}

TEST_CASE("PyramidInfer chooses one set per layer") {
  CHECK(parse_composition("pivotal_context", builtin()).layer_unit());
}

}  // namespace kvsim::policy::test::test_eviction_pivotal_context
