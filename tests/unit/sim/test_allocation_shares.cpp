#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/replay/allocation_pass.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/study.hpp"

namespace kvsim::test_allocation_shares {

using Shares = std::vector<std::vector<double>>;

namespace {

Shares shares_of(const std::string& policy, const std::string& budget, std::uint64_t prompt = 40) {
  const trace::MemoryTrace trace =
      test::random_trace({.layers = 3, .kv_heads = 2, .group = 2, .prompt = prompt, .decode = 5});
  Progress progress;
  return sim::allocation_shares(trace::Sequence(trace), test::request_of({policy}, {budget}), progress);
}

}  // namespace

TEST_CASE("shares are what lanes get above the floor") {
  // Pyramid, floor 8, mean 18: a mean of 10 above the floor, of which the last layer gets 1 (beta 10) and the
  // first 19.
  const Shares shares = shares_of("snapkv(window=8)+pyramid(beta=10)", "18");
  REQUIRE(shares.size() == 3);
  for (const std::vector<double>& layer : shares) REQUIRE(layer.size() == 2);
  CHECK(shares[0][1] == 19.0 / 60);
  CHECK(shares[1][0] == 10.0 / 60);
  CHECK(shares[2][0] == 1.0 / 60);
  // With nothing above the floor, shares are equal.
  CHECK(shares_of("snapkv(window=8)+pyramid", "8") == Shares(3, {1.0 / 6, 1.0 / 6}));
  // A layer that never evicts counts as its prompt: 40 - 1, and 9 each of the 18 tokens per head it leaves.
  CHECK(shares_of("l2_norm+exempt(first=1)", "20")[0][0] == 39.0 / 114);
}

TEST_CASE("an allocation with its own total returns tokens") {
  // The budget is the whole prompt, so it is enough for any target: the tokens are those that the target
  // needs.
  const auto kept = [](const std::string& target) {
    double sum = 0;
    for (const std::vector<double>& layer :
         shares_of("snapkv(window=8,unit=layer)+xkv(r_avg=" + target + ")", "100%"))
      for (const double tokens : layer) {
        CHECK(tokens == std::floor(tokens));
        CHECK(tokens == layer[0]);
        sum += tokens;
      }
    return sum;
  };
  CHECK(kept("0.5") > 0);
  CHECK(kept("0.5") < kept("0.9"));
  CHECK(kept("0.9") < kept("1"));
  CHECK(kept("1") <= 32.0 * 6);
}

TEST_CASE("a policy that cannot run on the trace is refused with the reason") {
  CHECK_THROWS_WITH(shares_of("snapkv(window=8)+xkv", "7"), Catch::Contains("8 tokens"));
}

TEST_CASE("a sample has the size asked for, depends on the seed and is contained in larger ones") {
  CHECK(sim::sampled_runs(20, 0.1, 1).size() == 2);
  CHECK(sim::sampled_runs(3, 0.1, 1).size() == 1);
  CHECK(sim::sampled_runs(4, 1, 1) == std::vector<std::size_t>{0, 1, 2, 3});
  bool differs = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<std::size_t> few = sim::sampled_runs(30, 0.2, seed),
                                   more = sim::sampled_runs(30, 0.5, seed);
    CHECK(std::is_sorted(few.begin(), few.end()));
    CHECK(std::includes(more.begin(), more.end(), few.begin(), few.end()));
    differs |= few != sim::sampled_runs(30, 0.2, 99);
  }
  CHECK(differs);
}

}  // namespace kvsim::test_allocation_shares
