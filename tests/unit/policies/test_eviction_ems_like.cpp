#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_ems_like {

using Positions = std::vector<Position>;

namespace {

/// Mean of column j over rows [from, prompt) that see it.
double column_mean(const Run& run, int head, std::size_t j, std::size_t from) {
  double sum = 0;
  for (std::size_t i = std::max(from, j); i < run.prompt; ++i) sum += static_cast<double>(run.p(head, i, j));
  return sum / static_cast<double>(run.prompt - std::max(from, j));
}

double score(const Run& run, std::size_t window, Position position) {
  const auto j = static_cast<std::size_t>(position);
  const std::size_t n = run.prompt - std::min(window, run.prompt);
  double out = 0;
  for (int head = 0; head < run.unit.n_query_heads() && j < n; ++head) {
    double most_global = 0, most_local = 0;
    for (std::size_t i = 0; i < n; ++i) {
      most_global = std::max(most_global, column_mean(run, head, i, 0));
      most_local = std::max(most_local, column_mean(run, head, i, n));
    }
    out += std::max(column_mean(run, head, j, 0), column_mean(run, head, j, n) * most_global / most_local);
  }
  return out;
}

}  // namespace

TEST_CASE("ems_like keeps positions that all rows or the last rows attend, worked by hand") {
  Run run = blank_run({.prompt = 5, .decode = 1, .n_lanes = 1, .group = 1});
  // Position 0 is attended early, 3 by the window (row 4), 1 and 2 a little by both.
  run.p(0, 0, 0) = run.p(0, 1, 0) = run.p(0, 2, 0) = 1;
  run.p(0, 3, 1) = run.p(0, 3, 2) = 0.5F;
  run.p(0, 4, 1) = 0.25F, run.p(0, 4, 3) = 0.5F;
  // Global: 3/5, 0.75/4, 0.5/3, 0.5/2. Local 0, 0.25, 0, 0.5, times 1.2: 0.3 for position 1, 0.6 for 3.
  CHECK(feed("ems_like(window=1)", run, 3).kept == Positions{0, 3, 4});
  CHECK(feed("ems_like(window=1)", run, 4).kept == Positions{0, 1, 3, 4});
  CHECK(feed("ems_like(window=1)", run, 3).held[0] == Positions{0, 3, 4, 5});
}

TEST_CASE("ems_like agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::size_t window = 1 + seed % 5;
    const int lanes = 1 + static_cast<int>(seed % 2);
    const Run run = random_run({.prompt = 6 + seed % 19, .decode = 2, .n_lanes = lanes, .group = 2}, seed);
    const SlowRule rule{
        .score = [window](const Run& r, const Attended&, Position j) { return score(r, window, j); },
        .window = window,
        .decodes = false};
    const std::string policy =
        "ems_like(window=" + std::to_string(window) + ",unit=" + (lanes == 1 ? "lane)" : "layer)");
    for (std::size_t budget = window; budget < run.prompt + 1; ++budget) {
      CAPTURE(policy, seed, budget);
      CHECK(feed(policy, run, budget).kept == feed_slowly(rule, run, budget).kept);
    }
  }
}

}  // namespace kvsim::policy::test::test_eviction_ems_like
