#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_l2_norm {

using Positions = std::vector<Position>;

namespace {

double minus_norm(const Run& run, const Attended&, Position position) {
  double squares = 0;
  for (int i = 0; i < run.unit.head_dim; ++i) {
    const double x = run.keys[0][static_cast<std::size_t>(position * run.unit.head_dim + i)];
    squares += x * x;
  }
  return -std::sqrt(squares);
}

/// Keys (n, 0, 0) with the given norms n.
Run run_of_norms(std::size_t prompt, const std::vector<float>& norms) {
  Run run = blank_run({.prompt = prompt, .decode = norms.size() - prompt, .n_lanes = 1, .group = 1});
  for (std::size_t j = 0; j < norms.size(); ++j)
    run.keys[0][j * static_cast<std::size_t>(run.unit.head_dim)] = norms[j];
  return run;
}

}  // namespace

TEST_CASE("l2_norm keeps small keys, worked by hand") {
  // Norms 5 1 4 2 | 3 9 1, budget 2: of the prompt 1 and 3 are kept (norms 1, 2).
  // 4 arrives: the larger of 1, 2 is evicted, position 3. 5 arrives: of 1, 3 position 4 is evicted. 6
  // arrives: 5 is evicted.
  const Fed fed = feed("l2_norm", run_of_norms(4, {5, 1, 4, 2, 3, 9, 1}), 2);
  CHECK(fed.kept == Positions{1, 3});
  CHECK(fed.held == std::vector<Positions>{{1, 4}, {1, 5}, {1, 6}});
}

TEST_CASE("l2_norm protects sinks and a window when asked") {
  // Same norms, budget 3, one sink, window 1: prompt keeps 0 (sink), 3 (window), 1 (norm 1).
  // 4 arrives: 1 and 3 may be evicted (the window is now 4), 3 has the larger norm.
  const Fed fed = feed("l2_norm(sinks=1,window=1)", run_of_norms(4, {5, 1, 4, 2, 3}), 3);
  CHECK(fed.kept == Positions{0, 1, 3});
  CHECK(fed.held.back() == Positions{0, 1, 4});
}

TEST_CASE("equal norms are evicted in the order that tie says") {
  const Run run = run_of_norms(4, {1, 1, 1, 1, 1});
  CHECK(feed("l2_norm(tie=oldest)", run, 2).kept == Positions{2, 3});
  CHECK(feed("l2_norm(tie=newest)", run, 2).kept == Positions{0, 1});
  CHECK(feed("l2_norm(tie=oldest)", run, 2).held.back() == Positions{3, 4});
  CHECK(feed("l2_norm(tie=newest)", run, 2).held.back() == Positions{0, 4});
}

TEST_CASE("l2_norm agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const int levels = seed % 2 == 0 ? 2 : 1000000;
    const Run run =
        random_run({.prompt = 3 + seed % 9, .decode = 10, .n_lanes = 1, .group = 1}, seed, levels);
    const std::size_t sinks = seed % 3, window = seed % 4;
    for (std::size_t budget = sinks + std::max<std::size_t>(window, 1); budget < 14; ++budget) {
      for (const bool newest : {false, true}) {
        const std::string policy = "l2_norm(sinks=" + std::to_string(sinks) +
                                   ",window=" + std::to_string(window) +
                                   ",tie=" + (newest ? "newest" : "oldest") + ")";
        const Fed slow = feed_slowly({minus_norm, sinks, window, newest}, run, budget);
        const Fed fast = feed(policy, run, budget);
        CAPTURE(policy, seed, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
    }
  }
}

TEST_CASE("a key that is not finite is refused with its position") {
  Run run = run_of_norms(3, {1, NAN, 1});
  CHECK_THROWS_WITH(feed("l2_norm", run, 2), Catch::Contains("position 1") && Catch::Contains("KV head 0"));
}

TEST_CASE("a share of the cache is evicted at once, worked by hand") {
  // Norms 5 1 4 2 | 3 9 1 1, budget 4, half of it at a time. 4 arrives: the two largest, 0 and 2, are
  // evicted; 5 fills the last slot; 6 arrives: of 1 2 3 9 the last two are evicted; 7 finds room.
  const Fed fed = feed("l2_norm(drop=0.5)", run_of_norms(4, {5, 1, 4, 2, 3, 9, 1, 1}), 4);
  CHECK(fed.kept == Positions{0, 1, 2, 3});
  CHECK(fed.held == std::vector<Positions>{{1, 3, 4}, {1, 3, 4, 5}, {1, 3, 6}, {1, 3, 6, 7}});
}

TEST_CASE("pruned as the authors' script does, the cache size follows a sawtooth") {
  // 2 % of 100: it grows to 100, falls back by two and takes the next token.
  const Run run = random_run({.prompt = 90, .decode = 40, .n_lanes = 1, .group = 1}, 5);
  const Fed fed = feed("l2_norm.prune", run, 100);
  for (std::size_t s = 0; s < fed.held.size(); ++s)
    CHECK(fed.held[s].size() == (s < 10 ? 91 + s : s % 2 == 0 ? 99U : 100U));
}

TEST_CASE("equal norms are evicted together in the order that tie says") {
  const Run run = run_of_norms(4, {1, 1, 1, 1, 1});
  CHECK(feed("l2_norm(drop=0.5,tie=oldest)", run, 4).held.back() == Positions{2, 3, 4});
  CHECK(feed("l2_norm(drop=0.5,tie=newest)", run, 4).held.back() == Positions{0, 1, 4});
  CHECK(feed("l2_norm(drop=0.5,tie=slot)", run, 4).held.back() == Positions{2, 3, 4});
  // A sink and the window are kept even if more should be evicted than the rest.
  CHECK(feed("l2_norm(drop=1,sinks=1,window=2)", run, 4).held.back() == Positions{0, 3, 4});
}

TEST_CASE("kvpress's norms cut the prompt and append generated tokens") {
  const Fed fed = feed("l2_norm.kvpress", run_of_norms(4, {5, 1, 4, 2, 9, 9}), 2);
  CHECK(fed.kept == Positions{1, 3});
  CHECK(fed.held.back() == Positions{1, 3, 4, 5});
}

}  // namespace kvsim::policy::test::test_eviction_l2_norm
