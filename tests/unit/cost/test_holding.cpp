#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/cost/holding.hpp"
#include "tests/unit/traces/scratch.hpp"

namespace kvsim::cost::test_holding {
namespace {

/// Shaped as Llama-3-8B.
Model model() {
  Model out;
  out.layers = 32;
  out.hidden = 4096;
  out.query_heads = 32;
  out.kv_heads = 8;
  out.head_dim = out.value_dim = 128;
  return out;
}

policy::Composition policy_of(const std::string& text) {
  return policy::parse_composition(text, policy::builtin());
}

TEST_CASE("A rule's holding fills the budget and stops growing, or appends", "[holding]") {
  const Holding h2o = rule_holding(policy_of("h2o"), model(), 0, 1000, 500, 100);
  CHECK(h2o.tokens(0) == 256 * 100);
  CHECK(h2o.tokens(500) == 256 * 100);
  const Holding snapkv = rule_holding(policy_of("snapkv"), model(), 0, 1000, 500, 100);
  CHECK(snapkv.tokens(0) == 256 * 100);
  CHECK(snapkv.tokens(500) == 256 * 600);
  const Holding full = rule_holding(policy_of("full"), model(), 32, 1000, 500, 1);
  CHECK(full.tokens(0) == 1024 * 1000);
  CHECK(full.tokens(500) == 1024 * 1500);
  const Holding post = rule_holding(policy_of("h2o(phase=post)"), model(), 0, 1000, 500, 100);
  CHECK(post.tokens(0) == 256 * 100);
  CHECK(post.tokens(1) == 256 * 101);
  CHECK(post.tokens(2) == 256 * 101);
  const Holding roomy = rule_holding(policy_of("h2o"), model(), 0, 1000, 500, 1200);
  CHECK(roomy.tokens(0) == 256 * 1000);
  CHECK(roomy.tokens(199) == 256 * 1199);
  CHECK(roomy.tokens(500) == 256 * 1200);
}

TEST_CASE("no lane holds tokens that a sliding window hides", "[holding]") {
  Model sliding = model();
  sliding.window = 400;
  const auto held = [&](const char* policy, std::uint64_t prompt, std::uint64_t budget, std::uint64_t step) {
    return rule_holding(policy_of(policy), sliding, 0, prompt, 500, budget).tokens(step) / 256;
  };
  CHECK(held("full", 1000, 1, 0) == 400);
  CHECK(held("full", 1000, 1, 500) == 400);
  CHECK(held("full", 300, 1, 99) == 399);
  CHECK(held("full", 300, 1, 101) == 400);
  CHECK(held("snapkv", 1000, 150, 0) == 150);
  CHECK(held("snapkv", 1000, 150, 500) == 400);
  CHECK(held("h2o", 1000, 150, 500) == 150);
  CHECK(held("h2o", 1000, 700, 500) == 400);
  CHECK(held("snapkv(window=8)+pyramid", 1000, 150, 0) <= 150);
}

TEST_CASE("a streamed prompt fills up to what a query may attend", "[holding]") {
  // With phase=post B + 1 tokens are resident when a query attends, in the prompt as later.
  const Holding stream = rule_holding(policy_of("h2o(prompt=stream,phase=post)"), model(), 0, 1000, 500, 100);
  CHECK(stream.tokens(0) == 256 * 101);
  CHECK(stream.tokens(500) == 256 * 101);
}

TEST_CASE("what leaves is taken to be of the prompt", "[holding]") {
  const EqualLanes lane{1, 10, 12};
  const auto tokens = [&](std::uint64_t step, std::uint64_t most = kNoLimit) {
    const LaneTokens of = lane.tokens(step, most);
    return std::pair{of.kept, of.appended};
  };
  CHECK(tokens(0) == std::pair<std::uint64_t, std::uint64_t>{10, 0});
  CHECK(tokens(2) == std::pair<std::uint64_t, std::uint64_t>{10, 2});
  CHECK(tokens(5) == std::pair<std::uint64_t, std::uint64_t>{7, 5});
  CHECK(tokens(20) == std::pair<std::uint64_t, std::uint64_t>{0, 12});
  CHECK(tokens(2, 8) == std::pair<std::uint64_t, std::uint64_t>{6, 2});  // a sliding window
}

TEST_CASE("splits by position are those of the allocation", "[holding]") {
  Model small = model();
  small.layers = 4;
  small.kv_heads = 2;
  // Of 100 the window takes 8; the 92 above it fall from 2 * 92 - 92 / 20 = 179
  // (179.4) to 5 (4.6) along a line: 179.4, 121.13, 62.87, 4.6; whole by largest remainder: 368 in all.
  const Holding pyramid =
      rule_holding(policy_of("snapkv(window=8)+pyramid(beta=20)"), small, 0, 1000, 500, 100);
  REQUIRE(pyramid.layers.size() == 4);
  const std::uint64_t above[] = {179, 121, 63, 5};
  for (std::size_t layer = 0; layer < 4; ++layer) {
    CHECK(pyramid.layers[layer].lanes == std::vector<EqualLanes>{{2, 8 + above[layer], kNoLimit}});
    CHECK(pyramid.layers[layer].longest(10) == 18 + above[layer]);
  }
  CHECK(pyramid.tokens(0) == 4 * 2 * 100);

  // One layer of four holds all of 120 and goes on growing; three share the rest: (4 * 60 - 120) / 3 = 40.
  const Holding exempt = rule_holding(policy_of("h2o+exempt(first=1)"), small, 0, 120, 500, 60);
  REQUIRE(exempt.layers.size() == 2);
  CHECK(exempt.layers[0].lanes == std::vector<EqualLanes>{{2, 120, kNoLimit}});
  CHECK(exempt.layers[1].layers == 3);
  CHECK(exempt.layers[1].lanes == std::vector<EqualLanes>{{2, 40, 40}});
  CHECK(exempt.tokens(500) == 2 * 620 + 6 * 40);
}

TEST_CASE("shares from a file split a budget, and lanes are stored as often as asked", "[holding]") {
  const test::Scratch scratch;
  const std::string file = scratch.file("shares.csv");
  std::ofstream(file) << "3,1\n2,2\n";
  Model small = model();
  small.layers = 2;
  small.kv_heads = 2;
  small.query_heads = 8;
  // A floor of 1 of 9 per lane; the 32 above it go 12, 4, 8, 8.
  const Holding holding = rule_holding(policy_of("window+fixed(shares=" + file + ")"), small, 8, 100, 50, 9);
  REQUIRE(holding.layers.size() == 2);
  CHECK(holding.layers[0].lanes == std::vector<EqualLanes>{{4, 13, 13}, {4, 5, 5}});
  CHECK(holding.layers[1].lanes == std::vector<EqualLanes>{{8, 9, 9}});
  CHECK(holding.tokens(0) == 4 * (13 + 5 + 9 + 9));
}

}  // namespace
}  // namespace kvsim::cost::test_holding
