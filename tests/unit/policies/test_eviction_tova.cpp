#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_tova {

using Positions = std::vector<Position>;

namespace {

double last_row(const Run& run, const Attended& attended, Position j) {
  return renormalised(run, attended, attended.size() - 1, j);
}

}  // namespace

TEST_CASE("tova evicts the token that the last query attends least, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 3, .n_lanes = 1, .group = 2});
  const auto set = [&](std::size_t query, const std::vector<float>& a, const std::vector<float>& b) {
    for (std::size_t j = 0; j < a.size(); ++j) run.p(0, query, j) = a[j], run.p(1, query, j) = b[j];
  };
  // Last prompt row, mean over the two heads: 0.35, 0.1, 0.35, 0.2. Budget 3 keeps 0, 2, 3.
  set(3, {0.6F, 0.1F, 0.1F, 0.2F}, {0.1F, 0.1F, 0.6F, 0.2F});
  // 4 arrives: 3 is evicted. Its query over 0, 2, 4: head 0 0.1, 0.2, 0.1 of 0.4, head 1 0.4, 0.2, 0.2 of
  // 0.8. Renormalised means 0.375, 0.375, 0.25: the newest token has the least.
  set(4, {0.1F, 0.5F, 0.2F, 0.1F, 0.1F}, {0.4F, 0.1F, 0.2F, 0.1F, 0.2F});
  // 5 arrives: 4 is evicted. Over 0, 2, 5: 0.1, 0.3, 0.2 in both heads. 6 arrives: 0 is evicted.
  set(5, {0.1F, 0.1F, 0.3F, 0.1F, 0.2F, 0.2F}, {0.1F, 0.1F, 0.3F, 0.1F, 0.2F, 0.2F});
  set(6, {1}, {1});
  const Fed fed = feed("tova", run, 3);
  CHECK(fed.kept == Positions{0, 2, 3});
  CHECK(fed.held == std::vector<Positions>{{0, 2, 4}, {0, 2, 5}, {2, 5, 6}});
}

TEST_CASE("tova agrees with its definition, per lane and per layer") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::size_t sinks = seed % 3, window = (seed / 3) % 3;
    const int lanes = 1 + static_cast<int>(seed % 2);
    const Run run = random_run({.prompt = 2 + seed % 13, .decode = 11, .n_lanes = lanes, .group = 2}, seed);
    const std::string policy = std::string("tova(unit=") + (lanes == 1 ? "lane" : "layer") +
                               ",sinks=" + std::to_string(sinks) + ",window=" + std::to_string(window) + ")";
    for (std::size_t budget = sinks + std::max<std::size_t>(window, 1); budget < 17; ++budget) {
      const Fed slow = feed_slowly({last_row, sinks, window}, run, budget);
      const Fed fast = feed(policy, run, budget);
      CAPTURE(policy, seed, budget);
      CHECK(fast.kept == slow.kept);
      CHECK(fast.held == slow.held);
    }
  }
}

TEST_CASE("evicting after attending B + 1 equals evicting before attending with a budget of one more") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 6 + seed % 7, .decode = 9, .n_lanes = 1, .group = 2}, seed);
    for (std::size_t budget = 1; budget < 12; ++budget) {
      // The authors' order: attend all resident tokens and the newest, then keep the best `budget` of that
      // row.
      Attended attended(run.length());
      std::set<Position> held;
      const auto attend_and_drop = [&](std::size_t query) {
        attended[query] = held;
        while (held.size() > budget) {
          held.erase(*std::min_element(held.begin(), held.end(), [&](Position a, Position b) {
            return renormalised(run, attended, query, a) < renormalised(run, attended, query, b);
          }));
        }
      };
      for (std::size_t query = 0; query < run.prompt; ++query) held.insert(static_cast<Position>(query));
      attend_and_drop(run.prompt - 1);
      const Fed fed = feed("tova", run, budget + 1);
      for (std::size_t step = 0; step < run.decode; ++step) {
        held.insert(static_cast<Position>(run.prompt + step));
        attend_and_drop(run.prompt + step);
        const std::set<Position>& theirs = attended[run.prompt + step];
        CHECK(fed.held[step] == Positions(theirs.begin(), theirs.end()));
      }
    }
  }
}

TEST_CASE("equal attention is evicted in the order that tie says") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 8, .decode = 10, .n_lanes = 1, .group = 1}, seed, 2);
    for (std::size_t budget = 1; budget < 9; ++budget) {
      for (const bool newest : {false, true}) {
        const Fed slow = feed_slowly({last_row, 0, 0, newest}, run, budget);
        CHECK(feed(newest ? "tova(tie=newest)" : "tova(tie=oldest)", run, budget).held == slow.held);
      }
    }
  }
}

TEST_CASE("over one lane the layer is the lane, and layer is the default") {
  const Run run = random_run({.prompt = 12, .decode = 12, .n_lanes = 1, .group = 3}, 4);
  for (std::size_t budget = 1; budget < 14; ++budget)
    CHECK(feed("tova", run, budget).held == feed("tova(unit=lane)", run, budget).held);
  CHECK(parse_composition("tova", builtin()).layer_unit());
  CHECK_FALSE(parse_composition("tova(unit=lane)", builtin()).layer_unit());
}

TEST_CASE("a head that attends no resident token does not count") {
  Run run = blank_run({.prompt = 3, .decode = 2, .n_lanes = 1, .group = 2});
  for (std::size_t j = 0; j < 3; ++j) run.p(0, 2, j) = run.p(1, 2, j) = 0.3F - 0.1F * static_cast<float>(j);
  run.p(0, 3, 0) = 0.1F, run.p(0, 3, 3) = 0.2F;  // head 1 is all zero at step 3
  CHECK(feed("tova", run, 2).held == std::vector<Positions>{{0, 3}, {3, 4}});
}

TEST_CASE("sinks and the newest are kept beside the best scores, KVCache-Factory's vector") {
  // Scores 0.1 0.9 0.2 0.8 0.3 0.4, budget 4, one sink, one recent.
  Run run = blank_run({.prompt = 6, .decode = 0, .n_lanes = 1, .group = 1});
  const std::vector<float> scores = {0.1F, 0.9F, 0.2F, 0.8F, 0.3F, 0.4F};
  for (std::size_t j = 0; j < scores.size(); ++j) run.p(0, 5, j) = scores[j];
  CHECK(feed("tova(sinks=1,window=1)", run, 4).kept == Positions{0, 1, 3, 5});
}

TEST_CASE("kvpress's tova keeps the newest token, worked by hand") {
  Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 1, .group = 1});
  run.p(0, 2, 0) = 0.5F, run.p(0, 2, 1) = 0.3F, run.p(0, 2, 2) = 0.2F;
  CHECK(feed("tova", run, 2).kept == Positions{0, 1});
  CHECK(feed("tova.kvpress", run, 2).kept == Positions{0, 2});
}

}  // namespace kvsim::policy::test::test_eviction_tova
