#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "policies/builtin.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_eviction_nacl {

using Positions = std::vector<Position>;

namespace {

/// A prompt whose last row is given, one query head.
Run last_row(const std::vector<float>& row) {
  Run run = blank_run({.prompt = row.size(), .decode = 2, .n_lanes = 1, .group = 1});
  for (std::size_t j = 0; j < row.size(); ++j) run.p(0, row.size() - 1, j) = row[j];
  return run;
}

std::map<Position, int> kept_over_seeds(const std::string& policy, Run run, std::size_t budget, int seeds) {
  std::map<Position, int> out;
  for (int seed = 0; seed < seeds; ++seed) {
    run.unit.seed = static_cast<std::uint64_t>(seed);
    for (const Position position : feed(policy, run, budget).kept) ++out[position];
  }
  return out;
}

}  // namespace

TEST_CASE("nacl keeps the proxies and the positions they attend most") {
  // Scores 0.1, 0.9, 0.2, 0.8, 0.3, 0.4 from two proxy rows, positions 4 and 5, which are kept.
  Run run = blank_run({.prompt = 6, .decode = 2, .n_lanes = 1, .group = 1});
  const std::vector<float> scores = {0.1F, 0.9F, 0.2F, 0.8F, 0.3F, 0.4F};
  for (std::size_t j = 0; j < 5; ++j) run.p(0, 4, j) = run.p(0, 5, j) = scores[j] / 2;
  run.p(0, 5, 5) = scores[5];
  const Fed fed = feed("nacl(proxies=0.34,random=0,sinks=0,window=2)", run, 4);
  CHECK(fed.kept == Positions{1, 3, 4, 5});
  CHECK(fed.held.back() == Positions{1, 3, 4, 5, 6, 7});
}

TEST_CASE("without a random part nacl is the window's attention, unsmoothed") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 40, .decode = 3}, seed, seed % 2 == 0 ? 2 : 1000000);
    for (std::size_t budget = 5; budget < 45; ++budget)
      CHECK(feed("nacl(proxies=0.126,random=0,sinks=0,window=5)", run, budget).held ==
            feed("snapkv(window=5,pool=none)", run, budget).held);
  }
}

TEST_CASE("a single draw has the probabilities of softmax(score)") {
  // exp of 2, 0, 1, 0 by their sum: 0.610, 0.083, 0.225, 0.083; 4,000 draws have standard deviations 31, 17,
  // 26, 17.
  auto kept = kept_over_seeds("nacl(random=1,sinks=0)", last_row({2, 0, 1, 0}), 1, 4000);
  CHECK(std::abs(kept[0] - 2441) < 5 * 31);
  CHECK(std::abs(kept[1] - 330) < 5 * 17);
  CHECK(std::abs(kept[2] - 898) < 5 * 26);
  CHECK(std::abs(kept[3] - 330) < 5 * 17);
}

TEST_CASE("two draws are without replacement") {
  // Weights 1, 1, 2 (scores 0, 0, log 2): 2 is not in a sample of two with 1/4 * 1/3 * 2 = 1/6.
  auto kept = kept_over_seeds("nacl(random=1,sinks=0)", last_row({0, 0, std::log(2.0F)}), 2, 4000);
  CHECK(std::abs(kept[2] - 3333) < 5 * 24);
  CHECK(std::abs(kept[0] - 2333) < 5 * 31);
}

TEST_CASE("the highest scores are kept, and the sample is taken from the rest") {
  // Budget 10: 1 sink, 1 of window, floor(0.35 * 10) = 3 drawn, 5 highest.
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Run run = random_run({.prompt = 40, .decode = 1}, seed);
    run.unit.seed = seed;
    const Positions kept = feed("nacl(sinks=1,window=1)", run, 10).kept;
    REQUIRE(kept.size() == 10);
    const Positions sure = feed("nacl(random=0,sinks=1,window=1)", run, 7).kept;
    CHECK(std::includes(kept.begin(), kept.end(), sure.begin(), sure.end()));
  }
}

TEST_CASE("the draw follows from seed, layer and head") {
  Run run = random_run({.prompt = 80, .decode = 0}, 1);
  const Positions first = feed("nacl(random=1)", run, 20).kept;
  CHECK(feed("nacl(random=1)", run, 20).kept == first);
  run.unit.seed = 1;
  CHECK(feed("nacl(random=1)", run, 20).kept != first);
  run.unit.seed = 0, run.unit.layer = 1;
  CHECK(feed("nacl(random=1)", run, 20).kept != first);
  run.unit.layer = 0, run.unit.first_kv_head = 1;
  CHECK(feed("nacl(random=1)", run, 20).kept != first);
}

TEST_CASE("nacl as its authors' code protects needs room for 256 sinks") {
  CHECK(parse_composition("nacl.paddle", builtin()).floor() == 257);
}

}  // namespace kvsim::policy::test::test_eviction_nacl
