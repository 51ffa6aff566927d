#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_lava {

using Positions = std::vector<Position>;
using Scores = std::vector<std::vector<double>>;

namespace {

AllocationRequest request_of(Scores scores, std::size_t heads, std::size_t budget) {
  AllocationRequest request{.n_layers = scores.size() / heads,
                            .n_kv_heads = heads,
                            .prompt = scores[0].size(),
                            .budget = budget,
                            .floor = 1};
  request.scores = std::move(scores);
  return request;
}

double entropy_share(const Scores& layer) {
  double sum = 0, entropy = 0, count = 0;
  for (const std::vector<double>& head : layer)
    for (const double x : head) sum += x;
  for (const std::vector<double>& head : layer)
    for (const double x : head) {
      ++count;
      if (x > 0) entropy -= x / sum * std::log(x / sum);
    }
  return entropy / std::log(count);
}

}  // namespace

TEST_CASE("lava: attention of the window times the head's largest value, by hand") {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 2});
  // The last row alone is the window. The larger of both heads: .5, .3, .2.
  const float rows[2][4] = {{0.5F, 0.1F, 0.2F, 0.2F}, {0.1F, 0.3F, 0.1F, 0.5F}};
  for (int head = 0; head < 2; ++head)
    for (std::size_t j = 0; j < 4; ++j) run.p(head, 3, j) = rows[head][j];
  // L1 norms 3, 1, 2, 1: the largest counts for all.
  run.values[0] = {1, -2, 0, 1, 1, 1, 1, 0};
  const auto policy = parse_composition("lava(window=1,pool=none)", builtin());
  const auto eviction = policy.eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  const auto scores = eviction->scores();
  CHECK(scores[0] == Approx(1.5));
  CHECK(scores[1] == Approx(0.9));
  CHECK(scores[2] == Approx(0.6));
  CHECK(feed(policy, run, 3).kept == Positions{0, 1, 3});
}

TEST_CASE("lava keeps what snapkv with the same pool and group keeps: the factor is one for a head") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 8 + seed, .decode = 3, .n_lanes = 1, .group = 2}, seed);
    for (std::size_t budget = 4; budget < run.prompt; budget += 3)
      CHECK(feed("lava(window=4)", run, budget).held ==
            feed("snapkv(window=4,pool=max:7,group=max)", run, budget).held);
  }
}

TEST_CASE("lava_layers by hand") {
  // Two layers of one head, nothing protected, a floor of 1, 3 tokens each: 4 above the floors. The first
  // layer's scores are equal (1), the second's are a single one (0): all goes to the first, as far as it has
  // room, which is 4.
  CHECK(allocate("lava_layers", request_of({{.2, .2, .2, .2, .2}, {1, 0, 0, 0, 0}}, 1, 3)) == Tokens{5, 1});
  // Entropies 1 and ln 2 / ln 4 = 1/2: of 2 above the floors 4/3 and 2/3, the larger remainder. Of eight
  // scores 1 and 1/3: of 4 above the floors 3 and 1.
  CHECK(allocate("lava_layers", request_of({{.1, .1, .1, .1}, {.5, .5, 0, 0}}, 1, 2)) == Tokens{2, 2});
  CHECK(allocate("lava_layers", request_of({{.1, .1, .1, .1, .1, .1, .1, .1}, {.5, .5, 0, 0, 0, 0, 0, 0}}, 1,
                                           3)) == Tokens{4, 2});
}

TEST_CASE("lava_layers: entropies weigh layers, and heads compete as under adakv") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::size_t heads = 1 + seed % 3, layers = 2 + seed % 3, n = 6 + seed % 9, budget = 2 + seed % 4;
    Scores scores(layers * heads, std::vector<double>(n));
    for (std::size_t lane = 0; lane < scores.size(); ++lane)
      for (std::size_t j = 0; j < n; ++j)
        scores[lane][j] = std::pow(uniform01(combine({seed, lane, j})), static_cast<double>(1 + lane % 4));
    const Tokens tokens = allocate("lava_layers", request_of(scores, heads, budget));
    CAPTURE(seed);
    CHECK(total(tokens, n) == budget * layers * heads);
    std::vector<double> weights;
    for (std::size_t layer = 0; layer < layers; ++layer)
      weights.push_back(entropy_share({scores.begin() + static_cast<std::ptrdiff_t>(layer * heads),
                                       scores.begin() + static_cast<std::ptrdiff_t>((layer + 1) * heads)}));
    double all = 0;
    for (const double weight : weights) all += weight;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      std::size_t got = 0;
      for (std::size_t head = 0; head < heads; ++head) got += tokens[layer * heads + head] - 1;
      // Whole numbers, where no layer is full.
      const double share = weights[layer] / all * static_cast<double>((budget - 1) * layers * heads);
      if (share < static_cast<double>((n - 1) * heads) - 1)
        CHECK(std::abs(static_cast<double>(got) - share) < 1);
    }
    if (layers == 2 && heads > 1) {
      // Layers alike: every layer keeps its own budget, and the rest is adakv.
      Scores twice(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(heads));
      twice.insert(twice.end(), twice.begin(), twice.end());
      CHECK(allocate("lava_layers", request_of(twice, heads, budget)) ==
            allocate("adakv", request_of(twice, heads, budget)));
    }
  }
}

TEST_CASE("lava_layers at its limits") {
  CHECK(allocate("lava_layers", request_of({{0, 0, 0, 0}, {0, 0, 0, 0}}, 1, 2)) == Tokens{2, 2});
  CHECK(allocate("lava_layers", request_of({{.1, .2, .3, .4}, {.5, .5, 0, 0}}, 1, 4)) == Tokens{4, 4});
  CHECK(allocate("lava_layers", request_of({{.1, .2, .3, .4}, {.5, .5, 0, 0}}, 1, 1)) == Tokens{1, 1});
  CHECK_THROWS_WITH(allocate("lava_layers", request_of({{-1, 1}, {1, 1}}, 1, 1)),
                    Catch::Contains("not negative"));
}

}  // namespace kvsim::policy::test::test_eviction_lava
