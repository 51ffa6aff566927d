#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "policies/builtin.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_eviction_random {

using Positions = std::vector<Position>;

namespace {

Fed feed_seeded(const std::string& policy, Run run, std::size_t budget, std::uint64_t seed) {
  run.unit.seed = seed;
  return feed(policy, run, budget);
}

/// Counts how often each position is in `pick(fed)` over many seeds.
template <class Pick>
std::map<Position, int> counts(const std::string& policy, const Run& run, std::size_t budget, int n_seeds,
                               Pick pick) {
  std::map<Position, int> out;
  for (int seed = 0; seed < n_seeds; ++seed)
    for (const Position position : pick(feed_seeded(policy, run, budget, static_cast<std::uint64_t>(seed))))
      ++out[position];
  return out;
}

}  // namespace

TEST_CASE("random depends on seed, layer and head, and on nothing else") {
  Run run = blank_run({.prompt = 64, .decode = 8});
  const Fed first = feed_seeded("random", run, 16, 5);
  CHECK(feed_seeded("random", run, 16, 5).held == first.held);
  CHECK(feed_seeded("random", run, 16, 6).kept != first.kept);
  run.unit.layer = 1;
  CHECK(feed_seeded("random", run, 16, 5).kept != first.kept);
  run.unit.layer = 0;
  run.unit.first_kv_head = 1;
  CHECK(feed_seeded("random", run, 16, 5).kept != first.kept);
}

TEST_CASE("a larger budget keeps a superset") {
  const Run run = blank_run({.prompt = 40, .decode = 0});
  Positions smaller = feed("random", run, 1).kept;
  for (std::size_t budget = 2; budget <= 40; ++budget) {
    const Positions larger = feed("random", run, budget).kept;
    CHECK(std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end()));
    smaller = larger;
  }
}

TEST_CASE("every prompt position is equally likely to be kept") {
  // 20 positions, 5 kept, 4,000 seeds: 1,000 each, standard deviation sqrt(4000 * 1/4 * 3/4) = 27.
  const Run run = blank_run({.prompt = 20, .decode = 0});
  const auto kept = counts("random", run, 5, 4000, [](const Fed& fed) { return fed.kept; });
  REQUIRE(kept.size() == 20);
  for (const auto& [position, n] : kept) CHECK(std::abs(n - 1000) < 5 * 27);
}

TEST_CASE("decoding keeps a uniform sample of the past; redraw thins old tokens out") {
  // 10 prompt and 20 generated tokens, budget 6. At the last step the newest token is held; the other 5 are a
  // uniform sample of the 29 before it: 4000 * 5/29 = 690 each, standard deviation 24.
  const Run run = blank_run({.prompt = 10, .decode = 20});
  const auto last = [](const Fed& fed) { return fed.held.back(); };
  auto held = counts("random", run, 6, 4000, last);
  CHECK(held[29] == 4000);
  for (Position position = 0; position < 29; ++position) CHECK(std::abs(held[position] - 690) < 5 * 24);
  // With redraw a token survives each step with probability 5/6: the one before the last is held 4000 * 5/6 =
  // 3,333 times (standard deviation 24), the first 0.6 * 4000 * (5/6)^20 = 63 times (standard deviation 8).
  auto redrawn = counts("random(redraw=true)", run, 6, 4000, last);
  CHECK(std::abs(redrawn[28] - 3333) < 5 * 24);
  CHECK(std::abs(redrawn[0] - 63) < 5 * 8);
}

TEST_CASE("random protects sinks and window when asked") {
  const Run run = blank_run({.prompt = 30, .decode = 10});
  for (const char* redraw : {"true", "false"}) {
    const Fed fed = feed(std::string("random(sinks=2,window=3,redraw=") + redraw + ")", run, 8);
    for (const Position position : {0, 1, 27, 28, 29})
      CHECK(std::count(fed.kept.begin(), fed.kept.end(), position) == 1);
    for (const Position position : {0, 1, 37, 38, 39})
      CHECK(std::count(fed.held.back().begin(), fed.held.back().end(), position) == 1);
  }
}

TEST_CASE("the lanes of a layer share one sample when the unit is the layer") {
  const Composition composition = parse_composition("random(unit=layer)", builtin());
  CHECK(composition.layer_unit());
  CHECK_FALSE(parse_composition("random", builtin()).layer_unit());
}

}  // namespace kvsim::policy::test::test_eviction_random
