#include <catch2/catch.hpp>
#include <cmath>

#include "policies/parts/rows/gumbel.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_keyformer {

namespace {

/// Returns softmax((log a + g) / tau) of a query head over the attended positions, at j, as the formula
/// reads.
double noisy(const Run& run, int head, const Attended& attended, std::size_t query, double tau, bool noise,
             Position j) {
  const std::uint64_t key =
      combine({combine({run.unit.seed, key_of("keyformer"), 0}), static_cast<std::uint64_t>(head), query});
  const auto logit = [&](Position i) {
    const double x = std::log(static_cast<double>(run.p(head, query, static_cast<std::size_t>(i))));
    return (x + (noise ? gumbel(combine({key, static_cast<std::uint64_t>(i)})) : 0)) / tau;
  };
  double sum = 0;
  for (const Position i : attended[query]) sum += std::exp(logit(i));
  return std::exp(logit(j)) / sum;
}

SlowRule noisy_rule(double tau, double growth, bool noise, std::size_t recent) {
  return {.score =
              [=](const Run& run, const Attended& attended, Position j) {
                double score = 0;
                for (std::size_t query = static_cast<std::size_t>(j); query < attended.size(); ++query) {
                  const double steps = query < run.prompt ? 0 : static_cast<double>(query + 1 - run.prompt);
                  for (int head = 0; head < run.unit.n_query_heads(); ++head)
                    score += noisy(run, head, attended, query, tau + growth * steps, noise, j);
                }
                return score;
              },
          .window = recent};
}

}  // namespace

TEST_CASE("keyformer agrees with its definition on logits") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Run run = random_run({.prompt = 3 + 2 * seed, .decode = 8, .n_lanes = 1, .group = 2}, seed);
    run.unit.seed = seed;
    for (const bool noise : {true, false}) {
      for (std::size_t budget = 2; budget < 12; budget += 3) {
        const std::string policy = std::string("keyformer(tau=1.5,tau_growth=0.25,recent=0.5,noise=") +
                                   (noise ? "gumbel)" : "none)");
        const Fed slow = feed_slowly(noisy_rule(1.5, 0.25, noise, budget / 2), run, budget);
        const Fed fast = feed(policy, run, budget);
        CAPTURE(policy, seed, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
    }
  }
}

TEST_CASE("keyformer without noise at temperature 1 is h2o") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 5 + seed, .decode = 15}, seed);
    for (std::size_t budget = 2; budget < 18; ++budget) {
      CHECK(feed("keyformer(noise=none,tau_growth=0)", run, budget).held ==
            feed("h2o(recent=0.3)", run, budget).held);
      CHECK(feed("keyformer(noise=none,tau_growth=0,recent=0.5)", run, budget).kept ==
            feed("h2o", run, budget).kept);
    }
  }
}

TEST_CASE("the noise follows from seed, layer and head") {
  Run run = random_run({.prompt = 40, .decode = 4}, 1);
  const Fed first = feed("keyformer", run, 10);
  CHECK(feed("keyformer", run, 10).held == first.held);
  for (const auto change : {0, 1, 2}) {
    Run other = run;
    (change == 0 ? other.unit.layer : other.unit.first_kv_head) += change == 2 ? 0 : 1;
    if (change == 2) other.unit.seed = 5;
    CHECK(feed("keyformer", other, 10).kept != first.kept);
  }
}

TEST_CASE("Gumbel draws have their distribution") {
  // Mean 0.5772, variance pi^2 / 6; 100,000 draws: standard error of the mean 0.0041.
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double g = gumbel(combine({7, i}));
    sum += g, squares += g * g;
  }
  const double mean = sum / 100000;
  CHECK(mean == Approx(0.5772).margin(0.02));
  CHECK(squares / 100000 - mean * mean == Approx(1.6449).margin(0.05));
}

TEST_CASE("a row that sees no resident position adds nothing") {
  Run run = blank_run({.prompt = 3, .decode = 2, .n_lanes = 1, .group = 2});
  for (std::size_t j = 0; j < 3; ++j) run.p(0, 2, j) = 0.5F - 0.1F * static_cast<float>(j);
  CHECK(feed("keyformer(noise=none,recent=0)", run, 2).held ==
        std::vector<std::vector<Position>>{{0, 3}, {0, 4}});
}

}  // namespace kvsim::policy::test::test_eviction_keyformer
