#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_cake {

namespace {

AllocationRequest request_of(std::vector<std::vector<double>> profiles, std::size_t heads,
                             std::size_t budget) {
  AllocationRequest request{
      .n_layers = profiles.size() / heads, .n_kv_heads = heads, .prompt = 100, .budget = budget, .floor = 10};
  request.profiles = std::move(profiles);
  return request;
}

}  // namespace

TEST_CASE("cake, worked by hand") {
  // H * V: 2 * 3 = 6, 1 * 2 = 2, 4 * 4 = 16; 24 in all. Eight tokens above the floor per layer, 24 in all.
  const AllocationRequest request = request_of({{2, 3}, {1, 2}, {4, 4}}, 1, 18);
  CHECK(allocate("cake_layers", request) == Tokens{16, 12, 26});
  // Square roots of H: 1.41 * 3, 1 * 2, 2 * 4 of 14.243: 7.149, 3.370, 13.481 tokens; the last remainder
  // wins.
  CHECK(allocate("cake_layers(tau1=2)", request) == Tokens{17, 13, 24});
  // Square roots of V: 2 * 1.732, 1.414, 4 * 2 of 12.878: 6.456, 2.636, 14.909; the third, then the second.
  CHECK(allocate("cake_layers(tau2=2)", request) == Tokens{16, 13, 25});
  // KV heads of a layer add up: 2 * 3 and 6 * 6 of 42, each of two tokens: 0.57 and 3.43.
  CHECK(allocate("cake_layers", request_of({{1, 1}, {1, 2}, {3, 3}, {3, 3}}, 2, 12)) ==
        Tokens{11, 11, 13, 13});
}

TEST_CASE("tokens that a layer cannot use go evenly to the others") {
  // 95 % of 240 would go to the last layer, which has room for 90: of the 150 left, 2 and 10 were theirs by
  // share.
  CHECK(allocate("cake_layers", request_of({{1, 1}, {1, 5}, {1, 114}}, 1, 90)) == Tokens{81, 89, 100});
}

TEST_CASE("cake without any preference is uniform") {
  CHECK(allocate("cake_layers", request_of({{0, 0}, {0, 0}}, 1, 33)) == Tokens{33, 33});
}

TEST_CASE("cake's preference is the entropy and the variance of the last rows before them") {
  const Layers layers = random_layers(3, {.prompt = 40, .decode = 0, .n_lanes = 2, .group = 2}, 9);
  for (const std::size_t rows : {1U, 7U, 40U, 50U}) {
    const Composition cake =
        parse_composition("h2o+cake_layers(rows=" + std::to_string(rows) + ")", builtin());
    const AllocationRequest request = measured_request(cake, layers, 20);
    for (std::size_t lane = 0; lane < 6; ++lane) {
      const Run& run = layers[lane / 2];
      const std::size_t n_keys = 40 - std::min<std::size_t>(rows, 40);
      double entropy = 0, variance = 0;
      for (int head = static_cast<int>(lane % 2) * 2; head < static_cast<int>(lane % 2) * 2 + 2; ++head)
        for (std::size_t j = 0; j < n_keys; ++j) {
          double mean = 0, squares = 0;
          for (std::size_t i = n_keys; i < 40; ++i)
            mean += static_cast<double>(run.p(head, i, j)) / static_cast<double>(rows);
          for (std::size_t i = n_keys; i < 40; ++i) {
            const auto p = static_cast<double>(run.p(head, i, j));
            entropy -= p * std::log(p);
            squares += (p - mean) * (p - mean);
          }
          if (rows > 1) variance += squares / static_cast<double>(rows - 1);
        }
      CAPTURE(rows, lane);
      CHECK(request.profiles[lane][0] == Approx(entropy).margin(1e-12));
      CHECK(request.profiles[lane][1] == Approx(variance).margin(1e-12));
    }
  }
}

TEST_CASE("a temperature that overflows is refused") {
  CHECK_THROWS_AS(allocate("cake_layers(tau1=0.05)", request_of({{1e20, 1}, {1, 1}}, 1, 20)), Error);
}

}  // namespace kvsim::policy::test::test_allocation_cake
