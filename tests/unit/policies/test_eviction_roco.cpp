#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_roco {

using Positions = std::vector<Position>;

namespace {

struct Statistics {
  double mean, deviation;
};

/// All attention that position j received: one value per query that attended it and per query head.
Statistics statistics(const Run& run, const Attended& attended, Position j) {
  std::vector<double> received;
  for (std::size_t query = static_cast<std::size_t>(j); query < attended.size(); ++query) {
    for (int head = 0; head < run.unit.n_query_heads(); ++head) {
      double mass = 0;
      for (const Position i : attended[query])
        mass += static_cast<double>(run.p(head, query, static_cast<std::size_t>(i)));
      const double a = static_cast<double>(run.p(head, query, static_cast<std::size_t>(j)));
      received.push_back(query < run.prompt ? a : a / mass);
    }
  }
  double mean = 0, variance = 0;
  for (const double a : received) mean += a / static_cast<double>(received.size());
  for (const double a : received) variance += (a - mean) * (a - mean) / static_cast<double>(received.size());
  return {mean, std::sqrt(variance)};
}

/// The rule step by step; no ties.
Fed feed_roco(const Run& run, std::size_t budget, double spread, Position sinks, Position window) {
  const auto spared = static_cast<std::size_t>(
      spread * static_cast<double>(budget - static_cast<std::size_t>(sinks + window)));
  const Cut cut = [&](const Attended& attended, std::set<Position>& held, std::size_t size, Position newest) {
    Positions free;
    for (const Position j : held)
      if (j >= sinks && j <= newest - window) free.push_back(j);
    std::sort(free.begin(), free.end(), [&](Position a, Position b) {
      return statistics(run, attended, a).deviation > statistics(run, attended, b).deviation;
    });
    const std::size_t leaving = held.size() - size;
    free.erase(free.begin(),
               free.begin() + static_cast<std::ptrdiff_t>(std::min(spared, free.size() - leaving)));
    std::sort(free.begin(), free.end(), [&](Position a, Position b) {
      return statistics(run, attended, a).mean < statistics(run, attended, b).mean;
    });
    for (std::size_t i = 0; i < leaving; ++i) held.erase(free[i]);
  };
  return feed_cutting(cut, run, budget);
}

}  // namespace

TEST_CASE("roco keeps varying attention and evicts the lowest mean, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  const std::vector<std::vector<float>> rows = {
      {1}, {0.5F, 0.5F}, {0.5F, 0, 0.5F}, {0.25F, 0.25F, 0.25F, 0.25F}, {0.5F, 0.25F, 0, 0, 0.25F}, {1}};
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j) run.p(0, i, j) = rows[i][j];
  // 0: 1, 0.5, 0.5, 0.25: mean 0.5625, deviation 0.27. 1: 0.5, 0, 0.25: 0.25, 0.204. 2: 0.5, 0.25: 0.375,
  // 0.125. 3: 0.25, no deviation. Budget 3, one spared: 0 varies most and is kept, 2 has the best mean, and
  // of
  // 1 and 3, both 0.25, the older is evicted.
  const std::string open = "roco(sinks=0,window=0,spread=";
  CHECK(feed(open + "0.34)", run, 3).kept == Positions{0, 2, 3});
  // Two spared: 0 and 1.
  CHECK(feed(open + "0.67)", run, 3).kept == Positions{0, 1, 2});
  // 4 arrives: of 0 (spared), 2 and 3, 3 is evicted. Over {0, 2, 4} step 4 gives 2/3, 0, 1/3: 2 falls to a
  // mean of 0.25 but now varies with 0.204; 0 has 0.23 and is spared; 4 (0.33) is kept, 2 is evicted.
  CHECK(feed(open + "0.34)", run, 3).held == std::vector<Positions>{{0, 2, 4}, {0, 4, 5}});
}

TEST_CASE("roco agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const Run run = random_run({.prompt = 3 + seed, .decode = 9, .n_lanes = 1, .group = 2}, seed);
    const auto sinks = static_cast<Position>(seed % 3), window = static_cast<Position>(seed % 4);
    for (const auto& [text, spread] : {std::pair{"0.3", 0.3}, {"0.6", 0.6}, {"1", 1.0}}) {
      for (std::size_t budget = 6; budget < 14; budget += 2) {
        const std::string policy = std::string("roco(spread=") + text + ",sinks=" + std::to_string(sinks) +
                                   ",window=" + std::to_string(window) + ")";
        const Fed slow = feed_roco(run, budget, spread, sinks, window), fast = feed(policy, run, budget);
        CAPTURE(policy, seed, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
    }
  }
}

TEST_CASE("roco that ignores the deviation is mean attention") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 25, .decode = 20}, seed, seed % 2 == 0 ? 3 : 1000000);
    for (std::size_t budget = 14; budget < 24; ++budget) {
      for (const char* prompt : {"rank", "stream"}) {
        const std::string shared = std::string(",prompt=") + prompt + ")";
        CHECK(feed("roco(spread=0" + shared, run, budget).held ==
              feed("h2o(recent=0,normalise=mean,sinks=4,window=10" + shared, run, budget).held);
      }
    }
  }
}

}  // namespace kvsim::policy::test::test_eviction_roco
