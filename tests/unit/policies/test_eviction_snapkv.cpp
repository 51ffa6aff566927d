#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_snapkv {

using Positions = std::vector<Position>;

namespace {

struct Options {
  std::size_t window = 32, kernel = 1;
  bool pool_max = false, group_max = false;
  std::size_t sinks = 0;
};

/// Returns the mean over the window's rows, padded and pooled per query head, reduced over heads.
double observed(const Options& options, const Run& run, Position j) {
  const auto n_scored = static_cast<int>(run.prompt - std::min(options.window, run.prompt));
  const auto reach = static_cast<int>(options.kernel / 2);
  double best = -INFINITY, sum = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    double average = 0, maximum = -INFINITY;
    for (int i = j - reach; i <= j + reach; ++i) {
      double mean = 0;
      if (i < 0 || i >= n_scored) continue;  // zero padding adds nothing to the average, and is no maximum
      for (std::size_t query = run.prompt - options.window; query < run.prompt; ++query)
        mean += static_cast<double>(run.p(head, query, static_cast<std::size_t>(i)));
      average += mean / static_cast<double>(options.kernel);
      maximum = std::max(maximum, mean);
    }
    const double pooled = options.pool_max ? maximum : average;
    best = std::max(best, pooled);
    sum += pooled;
  }
  return options.group_max ? best : sum;
}

SlowRule rule(const Options& options) {
  return {
      .score = [options](const Run& run, const Attended&, Position j) { return observed(options, run, j); },
      .sinks = options.sinks,
      .window = options.window,
      .decodes = false};
}

}  // namespace

TEST_CASE("snapkv keeps the positions that the window attends, worked by hand") {
  Run run = blank_run({.prompt = 7, .decode = 2, .n_lanes = 1, .group = 1});
  // Window 2: rows 5 and 6 over positions 0..4 sum to 0.5, 0, 0, 0.4, 0.2.
  for (const std::size_t query : {5U, 6U}) {
    run.p(0, query, 0) = 0.25F;
    run.p(0, query, 3) = 0.2F;
    run.p(0, query, 4) = 0.1F;
  }
  // Budget 4: the window and the two best.
  CHECK(feed("snapkv(window=2,pool=none)", run, 4).kept == Positions{0, 3, 5, 6});
  // Average of 3 with zero padding: 0.5/3, 0.5/3, 0.4/3, 0.6/3, 0.6/3: positions 3 and 4.
  CHECK(feed("snapkv(window=2,pool=avg:3)", run, 4).kept == Positions{3, 4, 5, 6});
  // Maximum of 3: 0.5, 0.5, 0.4, 0.4, 0.4.
  CHECK(feed("snapkv(window=2,pool=max:3)", run, 4).kept == Positions{0, 1, 5, 6});
  // Generated tokens are appended and nothing is evicted.
  CHECK(feed("snapkv(window=2,pool=none)", run, 4).held.back() == Positions{0, 3, 5, 6, 7, 8});
}

TEST_CASE("the group's reduction matters, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 2});
  // One row, heads (0.6, 0, 0.3) and (0, 0.5, 0.4): means 0.3, 0.25, 0.35, maxima 0.6, 0.5, 0.4.
  run.p(0, 3, 0) = 0.6F, run.p(0, 3, 2) = 0.3F;
  run.p(1, 3, 1) = 0.5F, run.p(1, 3, 2) = 0.4F;
  CHECK(feed("snapkv(window=1,pool=none)", run, 3).kept == Positions{0, 2, 3});
  CHECK(feed("snapkv(window=1,pool=none,group=max)", run, 3).kept == Positions{0, 1, 3});
}

TEST_CASE("snapkv agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Options options{.window = 1 + seed % 5,
                          .kernel = 1 + 2 * (seed % 4),
                          .pool_max = seed % 2 == 1,
                          .group_max = seed % 3 == 1,
                          .sinks = seed % 5 == 4 ? 2U : 0U};
    const int lanes = 1 + static_cast<int>(seed % 2);
    const Run run = random_run({.prompt = 8 + seed % 17, .decode = 3, .n_lanes = lanes, .group = 2}, seed);
    const std::string policy =
        "snapkv(window=" + std::to_string(options.window) + ",pool=" + (options.pool_max ? "max:" : "avg:") +
        std::to_string(options.kernel) + ",group=" + (options.group_max ? "max" : "mean") +
        ",unit=" + (lanes == 1 ? "lane" : "layer") +
        // Max pooling makes equal neighbours, so the test says which is evicted first.
        ",tie=oldest,sinks=" + std::to_string(options.sinks) + ")";
    for (std::size_t budget = options.sinks + options.window; budget < run.prompt + 2; ++budget) {
      const Fed slow = feed_slowly(rule(options), run, budget);
      const Fed fast = feed(policy, run, budget);
      CAPTURE(policy, seed, budget);
      CHECK(fast.kept == slow.kept);
      CHECK(fast.held == slow.held);
    }
  }
}

TEST_CASE("a prompt within the window is kept whole") {
  for (std::size_t prompt = 1; prompt <= 32; ++prompt) {
    const Run run = random_run({.prompt = prompt, .decode = 1, .n_lanes = 1, .group = 1}, prompt);
    CHECK(feed("snapkv", run, 32).kept.size() == prompt);
  }
}

TEST_CASE("averages inside the prompt favour its ends, worked by hand") {
  // Window 1 over 0.3, 0.1, 0.2, 0.25: padded averages of 3 are 0.4, 0.6, 0.55, 0.45 thirds, averages inside
  // 0.2, 0.2, 0.183, 0.225.
  Run run = blank_run({.prompt = 5, .decode = 0, .n_lanes = 1, .group = 1});
  const std::vector<float> row = {0.3F, 0.1F, 0.2F, 0.25F};
  for (std::size_t j = 0; j < row.size(); ++j) run.p(0, 4, j) = row[j];
  CHECK(feed("snapkv(window=1,pool=avg:3)", run, 2).kept == Positions{1, 4});
  CHECK(feed("snapkv(window=1,pool=avg:3:nopad)", run, 2).kept == Positions{3, 4});
}

TEST_CASE("presets have the settings of their codes") {
  const Run run = random_run({.prompt = 90, .decode = 2, .n_lanes = 1, .group = 2}, 3);
  for (const auto& [name, options] :
       {std::pair{"snapkv.longbench", Options{.window = 32, .kernel = 7, .pool_max = true}},
        {"snapkv.kvpress", Options{.window = 64, .kernel = 5}},
        {"snapkv.factory", Options{.window = 8, .kernel = 7, .pool_max = true}}}) {
    for (const std::size_t budget : {64U, 70U, 77U})
      CHECK(feed(name, run, budget).kept == feed_slowly(rule(options), run, budget).kept);
  }
}

}  // namespace kvsim::policy::test::test_eviction_snapkv
