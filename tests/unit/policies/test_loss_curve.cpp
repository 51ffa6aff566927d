#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <numeric>

#include "policies/parts/oracles/optimal_retention.hpp"
#include "sim/base/error.hpp"
#include "tests/support/exhaustive_retention.hpp"

namespace kvsim::policy::test_loss_curve {

using Curve = std::vector<double>;

namespace {

/// Returns the least sum over every split of `total` tokens over curves [first, ...), each at 1 .. most.
double least_of_every_split(const std::vector<Curve>& curves, std::size_t first, std::size_t total,
                            std::size_t most) {
  if (first == curves.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  const std::size_t others = curves.size() - first - 1;
  for (std::size_t b = 1; b <= std::min({most, curves[first].size(), total - others}); ++b)
    least = std::min(least, curves[first][b - 1] + least_of_every_split(curves, first + 1, total - b, most));
  return least;
}

double all_of(const kvsim::test::Decoding& run) {
  return std::accumulate(run.attention.begin(), run.attention.end(), 0.0);
}

/// Returns the least loss over every set of b prompt tokens, beside all generated tokens.
Curve append_losses_of_every_choice(const kvsim::test::Decoding& run) {
  Curve out(run.prompt, std::numeric_limits<double>::infinity());
  for (std::uint32_t set = 1; set < (1U << run.prompt); ++set) {
    double lost = 0;
    std::size_t held = 0;
    for (std::size_t j = 0; j < run.prompt; ++j) {
      held += set >> j & 1;
      for (std::size_t s = 0; s < run.n_steps && (set >> j & 1) == 0; ++s)
        if (run.first() + s != j) lost += static_cast<double>(run.at(s, j));
    }
    out[held - 1] = std::min(out[held - 1], lost);
  }
  return out;
}

}  // namespace

TEST_CASE("the losses of appending, worked by hand") {
  //            0  1  2  3  4
  // step 0     6  0  1  2
  // step 1     0  7  1  0  1
  const MassAhead future(kvsim::test::rows(3, 2, {{6, 0, 1, 2}, {0, 7, 1, 0, 1}}).view(), 3);
  CHECK(append_losses(future) == Curve{8 / 1024.0, 2 / 1024.0, 0});
  // With the last prompt row as the first step its own key 2 is found anyway, so key 2 is worth only the 1 of
  // step 1.
  const MassAhead again(kvsim::test::rows(3, 2, {{6, 0, 9}, {0, 7, 1, 2}}, true).view(), 3);
  CHECK(append_losses(again) == Curve{7 / 1024.0, 1 / 1024.0, 0});
  const MassAhead idle(kvsim::test::rows(3, 0, {}).view(), 3);
  CHECK(append_losses(idle) == Curve{0, 0, 0});
}

TEST_CASE("the losses of appending are the least of every choice, and at most those of managed schedules") {
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    const kvsim::test::Decoding run =
        kvsim::test::random_rows(1 + seed % 8, 1 + seed % 5, seed % 2 == 0 ? 3 : 1000, seed, seed % 3 == 2);
    const MassAhead future(run.view(), run.prompt);
    CAPTURE(seed);
    const Curve appending = append_losses(future);
    CHECK(appending == append_losses_of_every_choice(run));
    const Curve managed = OptimalRetention(future).losses();
    for (std::size_t b = 0; b < appending.size(); ++b) CHECK(appending[b] <= managed[b]);
  }
}

TEST_CASE("a lane that never evicts breaks convexity, and such a curve is refused") {
  // Two prompt tokens and one step: with two slots one of them is evicted for the step's own token.
  const kvsim::test::Decoding run = kvsim::test::rows(2, 1, {{300, 400, 324}});
  Curve losses = OptimalRetention(MassAhead(run.view(), 2)).losses();
  CHECK(losses == Curve{700 / 1024.0, 300 / 1024.0, 0});
  CHECK_NOTHROW(gains_of(losses));
  // If a lane whose budget is the whole prompt kept the generated token too, its last slot would be worth
  // more than the one before it.
  CHECK_THROWS_AS(gains_of(Curve{0.8095, 0.4721, 0}), Error);
  CHECK_THROWS_AS(gains_of(Curve{0.5, 0.6}), Error);
  CHECK(gains_of(Curve{0.75}).empty());
}

TEST_CASE("the least loss of a total is that of every schedule and every split") {
  std::size_t n_uneven = 0, n_totals = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const std::size_t prompt = 2 + seed % 4, n_steps = 1 + seed % 4, n_lanes = 2 + seed % 2;
    std::vector<Curve> managed, appending, tried;
    for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
      const kvsim::test::Decoding run = kvsim::test::random_rows(prompt, n_steps, seed % 2 == 0 ? 4 : 1000,
                                                                 10 * seed + lane, seed % 3 == 2);
      const MassAhead future(run.view(), prompt);
      managed.push_back(OptimalRetention(future).losses());
      appending.push_back(append_losses(future));
      Curve& slow = tried.emplace_back();
      for (std::size_t b = 1; b <= prompt; ++b)
        slow.push_back(all_of(run) - kvsim::test::most_retained(run, b));
    }
    for (std::size_t total = n_lanes; total <= n_lanes * prompt; ++total) {
      CAPTURE(seed, total);
      const double least = least_loss(managed, total, prompt);
      CHECK(least == Approx(least_of_every_split(tried, 0, total, prompt)).margin(1e-12));
      CHECK(least_loss(appending, total, prompt) ==
            Approx(least_of_every_split(appending, 0, total, prompt)).margin(1e-12));
      ++n_totals;
      if (total % n_lanes != 0) continue;
      double even = 0;
      for (const Curve& curve : managed) even += curve[total / n_lanes - 1];
      n_uneven += least < even - 1e-9 ? 1 : 0;
    }
  }
  CHECK(n_totals > 400);
  CHECK(n_uneven > 40);  // the split matters
  CHECK_THROWS_AS(least_loss(std::vector<Curve>{{1, 0}, {1, 0}}, 1, 2), Error);
}

}  // namespace kvsim::policy::test_loss_curve
