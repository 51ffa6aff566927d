// Allocations with layers that are never compressed: exempt and d2o.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_exempt {

namespace {

constexpr std::size_t kAll = kNeverEvict;

AllocationRequest request_of(std::size_t n_layers, std::size_t heads, std::size_t prompt, std::size_t budget,
                             std::size_t floor = 1) {
  return {.n_layers = n_layers, .n_kv_heads = heads, .prompt = prompt, .budget = budget, .floor = floor};
}

}  // namespace

TEST_CASE("exempt layers hold all tokens and the others share the rest of the budget") {
  // Five layers of a budget of 50 are 250 tokens per head; two prompts of 100 leave 50 for three: 17 17 16.
  CHECK(allocate("exempt", request_of(5, 1, 100, 50)) == Tokens{kAll, kAll, 17, 17, 16});
  CHECK(allocate("exempt(first=1,last=1)", request_of(5, 2, 100, 50)) ==
        Tokens{kAll, kAll, 17, 17, 17, 17, 16, 16, kAll, kAll});
  CHECK(allocate("exempt(first=0)", request_of(3, 1, 100, 50)) == Tokens{50, 50, 50});
  CHECK(allocate("exempt", request_of(5, 1, 100, 100)) == Tokens{kAll, kAll, 100, 100, 100});
}

TEST_CASE("a budget too small for the exempt layers is refused with the least that suffices") {
  // Floor 5: two of four layers need 95 more each, 190 over four lanes is 48 above the floor.
  CHECK_THROWS_WITH(allocate("exempt", request_of(4, 1, 100, 52, 5)),
                    Catch::Contains("2 of 4 layers") && Catch::Contains("53 tokens"));
  CHECK(allocate("exempt", request_of(4, 1, 100, 53, 5)) == Tokens{kAll, kAll, 6, 6});
  // With all layers exempt only the whole prompt suffices.
  CHECK_THROWS_AS(allocate("exempt", request_of(2, 1, 100, 99)), Error);
  CHECK(allocate("exempt", request_of(2, 1, 100, 100)) == Tokens{kAll, kAll});
}

TEST_CASE("d2o, worked by hand") {
  // Five layers of two heads; the first two and the last are exempt. Prompt 100, budget 70: 350 per head less
  // 300 leaves 50 for layers 2 and 3, of which one token each is the floor.
  AllocationRequest request = request_of(5, 2, 100, 70);
  // Variances of two query heads per lane. Layer 2: 0 1 / 1 1 between 0 and 1: u = 0.75. Layer 3: 2 4 / 2 2:
  // u = 0.25. Weights e^-.75 and e^-.25: shares 0.37754 and 0.62246 of 48.
  request.profiles = {{1, 2}, {3, 4}, {1, 2}, {3, 4}, {0, 1}, {1, 1}, {2, 4}, {2, 2}, {5, 6}, {7, 8}};
  CHECK(allocate("d2o_layers", request) == Tokens{kAll, kAll, kAll, kAll, 19, 19, 31, 31, kAll, kAll});
  // The authors' code takes u of the exempt layers, too: 1 2 3 4 scale to 0 1/3 2/3 1, u = 0.5, three times.
  // softmax * 5 * 0.7 of 100.
  const double sum = std::exp(-.75) + std::exp(-.25) + 3 * std::exp(-.5);
  const auto of = [&](double u) { return static_cast<std::size_t>(std::exp(-u) / sum * 5 * 0.7 * 100); };
  CHECK(allocate("d2o_layers(variant=official)", request) ==
        Tokens{kAll, kAll, kAll, kAll, of(.75), of(.75), of(.25), of(.25), kAll, kAll});
  CHECK(of(.75) == 53);  // 19 above the floor is what an exact total allows
}

TEST_CASE("d2o's official ratios stay between a hundredth and all of the prompt") {
  AllocationRequest request = request_of(4, 2, 1000, 3);
  request.profiles = {{1}, {2}, {1}, {2}, {1}, {2}, {1}, {2}};
  // A quarter each of 4 * 0.003: below a hundredth.
  CHECK(allocate("d2o_layers(variant=official,first=0,last=0)", request) == Tokens(8, 10));
  request.budget = 1000;
  CHECK(allocate("d2o_layers(variant=official,first=0,last=0)", request) == Tokens(8, 1000));
}

TEST_CASE("d2o measures the variance of the attention that positions received") {
  const Layers layers = random_layers(6, {.prompt = 23, .decode = 0, .n_lanes = 2, .group = 3}, 4);
  const Composition d2o = parse_composition("h2o+d2o_layers", builtin());
  const AllocationRequest request = measured_request(d2o, layers, 18);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (int head = 0; head < 6; ++head) {
      std::vector<double> received(23);
      for (std::size_t i = 0; i < 23; ++i)
        for (std::size_t j = 0; j <= i; ++j) received[j] += static_cast<double>(layers[layer].p(head, i, j));
      double mean = 0, variance = 0;
      for (const double x : received) mean += x / 23;
      for (const double x : received) variance += (x - mean) * (x - mean) / 22;
      const auto lane = layer * 2 + static_cast<std::size_t>(head) / 3;
      CHECK(request.profiles[lane][static_cast<std::size_t>(head) % 3] == Approx(variance));
    }
}

TEST_CASE("d2o with equal variances is exempt") {
  for (const std::size_t n_layers : {4U, 7U}) {
    AllocationRequest request = request_of(n_layers, 2, 90, 80, 3);
    request.profiles.assign(n_layers * 2, {0.5, 0.5});
    CHECK(allocate("d2o_layers", request) == allocate("exempt(first=2,last=1)", request));
  }
}

}  // namespace kvsim::policy::test::test_allocation_exempt
