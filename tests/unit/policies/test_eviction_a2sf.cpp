#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_a2sf {

using Positions = std::vector<Position>;

namespace {

/// Score: the sum over the rows that see j of alpha^(rows since) times the row.
SlowRule forgetting(double alpha, std::size_t window) {
  return {.score =
              [=](const Run& run, const Attended& attended, Position j) {
                double sum = 0;
                for (std::size_t query = static_cast<std::size_t>(j); query < attended.size(); ++query)
                  sum +=
                      std::pow(alpha, static_cast<double>(attended.size() - 1 - query)) *
                      (query < run.prompt ? mean_row(run, query, j) : renormalised(run, attended, query, j));
                return sum;
              },
          .window = window};
}

}  // namespace

TEST_CASE("a2sf forgets, worked by hand") {
  Run run = blank_run({.prompt = 3, .decode = 2, .n_lanes = 1, .group = 1});
  const std::vector<std::vector<float>> rows = {
      {1}, {0.5F, 0.5F}, {0.25F, 0.25F, 0.5F}, {0.5F, 0.25F, 0.125F, 0.125F}, {1}};
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j) run.p(0, i, j) = rows[i][j];
  // alpha 0.5: 0 has 0.25 * 1 + 0.5 * 0.5 + 0.25 = 0.75, 1 has 0.5 * 0.5 + 0.25 = 0.5, 2 has 0.5.
  // Of equals the older is evicted: budget 2 keeps 0 and 2. 3 arrives, 2 (0.5) is evicted; step 3 over {0, 3}
  // is 0.5, 0.125 of 0.625: 0 has 0.375 + 0.8, 3 has 0.2 and is evicted for 4.
  const Fed fed = feed("a2sf(alpha=0.5)", run, 2);
  CHECK(fed.kept == Positions{0, 2});
  CHECK(fed.held == std::vector<Positions>{{0, 3}, {0, 4}});
}

TEST_CASE("a2sf agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 2 + seed, .decode = 11, .n_lanes = 1, .group = 2}, seed);
    for (const auto& [text, alpha] : {std::pair{"0.1", 0.1}, {"0.5", 0.5}, {"0.95", 0.95}}) {
      for (const std::size_t window : {0U, 2U}) {
        const std::string policy =
            std::string("a2sf(alpha=") + text + ",window=" + std::to_string(window) + ")";
        for (std::size_t budget = 2; budget < 14; ++budget) {
          const Fed slow = feed_slowly(forgetting(alpha, window), run, budget),
                    fast = feed(policy, run, budget);
          CAPTURE(policy, seed, budget);
          CHECK(fast.kept == slow.kept);
          CHECK(fast.held == slow.held);
        }
      }
    }
  }
}

TEST_CASE("a2sf that forgets at once is tova, a2sf that never forgets is h2o") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    // Few levels make ties: the reductions hold for them, too.
    const Run run = random_run({.prompt = 3 + seed, .decode = 12}, seed, seed % 2 == 0 ? 3 : 1000000);
    for (std::size_t budget = 1; budget < 16; ++budget) {
      for (const char* prompt : {"rank", "stream"}) {
        const std::string shared = std::string(",prompt=") + prompt + ")";
        CHECK(feed("a2sf(alpha=0" + shared, run, budget).held ==
              feed("tova(unit=lane" + shared, run, budget).held);
        CHECK(feed("a2sf(alpha=1" + shared, run, budget).held ==
              feed("h2o(recent=0" + shared, run, budget).held);
      }
    }
  }
}

TEST_CASE("a2sf's later code ranks the prompt once and keeps a window of 16") {
  const Run run = random_run({.prompt = 40, .decode = 3}, 2);
  const Fed fed = feed("a2sf.repo", run, 20);
  CHECK(fed.kept == feed_slowly(forgetting(0.95, 16), run, 20).kept);
  CHECK(fed.held.back().size() == 23);
}

}  // namespace kvsim::policy::test::test_eviction_a2sf
