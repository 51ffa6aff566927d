#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/parts/splits/token_gains.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::test_token_gains {

using Doubles = std::vector<double>;

namespace {

AllocationRequest request_of(std::size_t prompt, std::size_t floor,
                             std::function<Protection(std::size_t, std::size_t)> protection) {
  return {.n_layers = 1,
          .n_kv_heads = 1,
          .prompt = prompt,
          .budget = prompt,
          .floor = floor,
          .protection = std::move(protection)};
}

/// Returns the sum that a lane of `budget` tokens keeps, computed from scratch.
double kept(const AllocationRequest& request, const Doubles& worth, std::size_t budget) {
  const Protection held = request.protection(budget, request.prompt);
  double sum = 0;
  std::size_t n = 0;
  Doubles others;
  for (std::size_t j = 0; j < request.prompt; ++j) {
    const double w = j < worth.size() ? worth[j] : 0;
    if (j < held.sinks || j + held.window >= request.prompt)
      sum += w, ++n;
    else
      others.push_back(w);
  }
  std::sort(others.rbegin(), others.rend());
  return std::accumulate(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(budget - n), sum);
}

}  // namespace

TEST_CASE("token gains, worked by hand") {
  // The first and the last of five are protected; 5, 3 and 2 remain to be won.
  const Doubles worth = {9, 3, 5, 2, 1};
  const TokenGains fixed = token_gains(request_of(5, 2,
                                                  [](std::size_t, std::size_t) {
                                                    return Protection{1, 1};
                                                  }),
                                       worth);
  CHECK(fixed.at_floor == 10);
  CHECK(fixed.above == Doubles{5, 3, 2});
  // A floor with room for one more holds the best of them.
  CHECK(token_gains(request_of(5, 3,
                               [](std::size_t, std::size_t) {
                                 return Protection{1, 1};
                               }),
                    worth)
            .above == Doubles{3, 2});
  // Without a `protection` function nothing is protected.
  CHECK(token_gains(request_of(5, 1, {}), worth).above == Doubles{5, 3, 2, 1});
  // Half of the budget is recent: of two tokens one goes to the last position (1), the third to the best left
  // (5), the fourth to the recent 2, the fifth to 3. 1 and 5 are averaged, and so are 2 and 3.
  const auto half = [](std::size_t budget, std::size_t) { return Protection{0, budget / 2}; };
  const TokenGains recent = token_gains(request_of(5, 1, half), worth);
  CHECK(recent.at_floor == 9);
  CHECK(recent.above == Doubles{3, 3, 2.5, 2.5});
  // Positions without a worth are worth nothing.
  CHECK(token_gains(request_of(4, 1, {}), Doubles{1, 2}).above == Doubles{1, 0, 0});
}

TEST_CASE("token gains sum up to what a lane keeps, or to its least concave bound") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::size_t prompt = 1 + seed % 17, scored = prompt - std::min<std::size_t>(prompt - 1, seed % 4);
    const std::size_t sinks = std::min<std::size_t>(seed % 3, prompt - 1);
    const double share = static_cast<double>(seed % 5) / 4;
    const auto protection = [&](std::size_t budget, std::size_t) {
      const std::size_t rest = budget - std::min(budget, sinks);
      return Protection{sinks, std::min(rest, static_cast<std::size_t>(share * static_cast<double>(budget)))};
    };
    const AllocationRequest request = request_of(prompt, sinks + 1, protection);
    Doubles worth(scored);
    for (std::size_t j = 0; j < scored; ++j) worth[j] = std::floor(20 * uniform01(combine({seed, j})));
    const TokenGains gains = token_gains(request, worth);
    REQUIRE(gains.above.size() == prompt - request.floor);
    CHECK(std::is_sorted(gains.above.rbegin(), gains.above.rend()));
    CHECK(gains.at_floor == kept(request, worth, request.floor));
    double sum = gains.at_floor;
    for (std::size_t i = 0; i < gains.above.size(); ++i) {
      sum += gains.above[i];
      const double now = kept(request, worth, request.floor + 1 + i);
      CAPTURE(seed, i);
      CHECK(sum >= now - 1e-9);
      const bool ends = i + 1 == gains.above.size() || gains.above[i + 1] < gains.above[i] - 1e-9;
      if (ends || share == 0) CHECK(sum == Approx(now).margin(1e-9));
    }
  }
}

TEST_CASE("a worth that is not a number, and protection beyond the budget, are refused") {
  CHECK_THROWS_AS(token_gains(request_of(2, 1, {}), Doubles{1, std::nan("")}), Error);
  CHECK_THROWS_AS(token_gains(request_of(2, 1,
                                         [](std::size_t, std::size_t) {
                                           return Protection{2, 0};
                                         }),
                              Doubles{1, 2}),
                  Error);
}

}  // namespace kvsim::policy::test_token_gains
