#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_caote {

using Positions = std::vector<Position>;

namespace {

/// How far the output of weights `a` moves when j leaves and the others are divided by what they add up to:
/// both outputs computed.
double moved(const std::vector<double>& a, const Run& run, std::size_t j) {
  const auto dim = static_cast<std::size_t>(run.unit.value_dim);
  double squares = 0;
  for (std::size_t c = 0; c < dim; ++c) {
    double with = 0, without = 0, all = 0, rest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double term = a[i] * static_cast<double>(run.values[0][i * dim + c]);
      with += term;
      all += a[i];
      if (i == j) continue;
      without += term;
      rest += a[i];
    }
    squares += (with / all - without / rest) * (with / all - without / rest);
  }
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("caote ranks by how far the output moves, by hand") {
  Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 1, .group = 1});
  run.p(0, 2, 0) = 0.5F;
  run.p(0, 2, 1) = 0.3F;
  run.p(0, 2, 2) = 0.2F;
  const auto kept = [&](std::vector<float> values, const char* output, std::size_t budget) {
    run.values[0] = std::move(values);
    return feed(std::string("caote(base=tova(unit=lane),output=") + output + ")", run, budget).kept;
  };
  REQUIRE(run.unit.value_dim == 2);
  // The output is (.7, .5), and moves by .5831, .3687 and .1458: without the third it is (.625, .375).
  run.values[0] = {1, 0, 0, 1, 1, 1};
  CHECK(moved({0.5, 0.3, 0.2}, run, 0) == Approx(0.5831).margin(5e-5));
  CHECK(moved({0.5, 0.3, 0.2}, run, 2) == Approx(0.1458).margin(5e-5));
  CHECK(kept({1, 0, 0, 1, 1, 1}, "attended", 2) == Positions{0, 1});
  // The output is .6 along the first axis. The third, which is attended least and points the other way, moves
  // it by .4, the second by .171.
  CHECK(kept({1, 0, 1, 0, -1, 0}, "attended", 2) == Positions{0, 2});
  // The mean value is 1/3: .667, .286 and .333.
  CHECK(kept({1, 0, 1, 0, -1, 0}, "mean", 2) == Positions{0, 2});
  CHECK(kept({1, 0, 1, 0, -1, 0}, "mean", 1) == Positions{0});
}

TEST_CASE("caote agrees with outputs that are computed without each token") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::size_t prompt = 3 + seed;
    const Run run = random_run({.prompt = prompt, .decode = 3, .n_lanes = 1, .group = 2}, seed);
    std::vector<double> a(prompt);
    for (std::size_t row = 0; row < prompt; ++row)
      for (std::size_t j = 0; j <= row; ++j) a[j] += mean_row(run, row, static_cast<Position>(j));
    std::vector<std::size_t> order(prompt);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t i, std::size_t j) { return moved(a, run, i) > moved(a, run, j); });
    for (std::size_t budget = 1; budget <= prompt; ++budget) {
      CAPTURE(seed, budget);
      Positions best;
      for (std::size_t i = 0; i < budget; ++i) best.push_back(static_cast<Position>(order[i]));
      std::sort(best.begin(), best.end());
      CHECK(feed("caote(base=h2o(recent=0))", run, budget).kept == best);
    }
  }
}

TEST_CASE("caote keeps what its base protects, and refuses one that reads token by token") {
  const Run run = random_run({.prompt = 20, .decode = 2, .n_lanes = 1, .group = 1}, 5);
  const Positions kept = feed("caote(base=snapkv(window=4,sinks=2))", run, 8).kept;
  for (const Position position : {0, 1, 16, 17, 18, 19})
    CHECK(std::find(kept.begin(), kept.end(), position) != kept.end());
  CHECK_THROWS_WITH(parse_composition("caote(base=h2o(prompt=stream))", builtin()),
                    Catch::Contains("token by token"));
}

}  // namespace kvsim::policy::test::test_eviction_caote
