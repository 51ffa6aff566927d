#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_vatp {

using Positions = std::vector<Position>;

namespace {

double value_norm(const Run& run, Position j) {
  double sum = 0;
  for (int d = 0; d < run.unit.value_dim; ++d)
    sum += std::abs(static_cast<double>(run.values[0][static_cast<std::size_t>(j * run.unit.value_dim + d)]));
  return sum;
}

/// Attention from all rows times the norm of the value.
double attention_times_norm(const Run& run, const Attended& attended, Position j) {
  double sum = 0;
  for (std::size_t query = static_cast<std::size_t>(j); query < attended.size(); ++query)
    sum += query < run.prompt ? mean_row(run, query, j) : renormalised(run, attended, query, j);
  return sum * value_norm(run, j);
}

void set_values(Run& run, float value) {
  for (float& x : run.values[0]) x = value;
}

}  // namespace

TEST_CASE("vatp weighs attention by the value's size and pins sinks, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  const std::vector<std::vector<float>> rows = {
      {1}, {0.5F, 0.5F}, {0.25F, 0.5F, 0.25F}, {0.25F, 0.25F, 0.25F, 0.25F}};
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j) run.p(0, i, j) = rows[i][j];
  for (std::size_t i = 4; i < 6; ++i)
    for (std::size_t j = 0; j <= i; ++j) run.p(0, i, j) = 0.125F;
  // Attention 2, 1.25, 0.5, 0.25; norms |-0.1| + |0.1| = 0.2, 0.2, 2, 2, then 0.2 and 0.2.
  set_values(run, 0.1F);
  run.values[0][0] = -0.1F;
  for (std::size_t j : {2U, 3U}) run.values[0][2 * j] = run.values[0][2 * j + 1] = -1;
  // Scores 0.4, 0.25, 1, 0.5: budget 2 keeps 2 and 3, attention alone 0 and 1. 4 arrives: 3 is evicted. Step
  // 4 gives each of {2, 4} half: 2 has (0.5 + 0.5) * 2, 4 has 0.5 * 0.2 and is evicted for 5.
  const Fed fed = feed("vatp(sinks=0,base=h2o(recent=0))", run, 2);
  CHECK(fed.kept == Positions{2, 3});
  CHECK(fed.held == std::vector<Positions>{{2, 4}, {2, 5}});
  CHECK(feed("vatp(sinks=1,base=h2o(recent=0))", run, 2).kept == Positions{0, 2});
}

TEST_CASE("vatp agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::size_t sinks = seed % 3;
    const Run run = random_run({.prompt = 2 + seed, .decode = 12, .n_lanes = 1, .group = 2}, seed);
    for (std::size_t budget = sinks + 2; budget < 16; ++budget) {
      const std::string policy = "vatp(sinks=" + std::to_string(sinks) + ",base=h2o(recent=0.5))";
      const std::size_t recent = std::min(budget / 2, budget - sinks);
      const Fed slow = feed_slowly({attention_times_norm, sinks, recent}, run, budget);
      const Fed fast = feed(policy, run, budget);
      CAPTURE(policy, seed, budget);
      CHECK(fast.kept == slow.kept);
      CHECK(fast.held == slow.held);
    }
  }
}

TEST_CASE("with values of equal size vatp is its base") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Run run = random_run({.prompt = 30, .decode = 20}, seed, seed % 2 == 0 ? 3 : 1000000);
    set_values(run, 0.5F);
    for (const char* base : {"h2o", "h2o(window=3,phase=post)", "h2o(prompt=stream)", "h2o(granularity=3)",
                             "a2sf", "snapkv(window=4)", "tova(unit=lane)"}) {
      CAPTURE(base);
      const std::string vatp = std::string("vatp(sinks=0,base=") + base + ")";
      const Composition composition = parse_composition(vatp, builtin());
      CHECK(composition.floor() == parse_composition(base, builtin()).floor());
      for (std::size_t budget = composition.floor(); budget < composition.floor() + 8; ++budget) {
        CHECK(feed(vatp, run, budget).kept == feed(base, run, budget).kept);
        CHECK(feed(vatp, run, budget).held == feed(base, run, budget).held);
      }
    }
  }
}

TEST_CASE("vatp needs its base's rows and values, and room for its sinks") {
  const Composition over_snapkv = parse_composition("vatp(base=snapkv)", builtin());
  CHECK(over_snapkv.eviction.needs().prompt_rows == RowNeed::window);
  CHECK(over_snapkv.eviction.needs().values);
  CHECK(over_snapkv.floor() == 52);
  CHECK(parse_composition("vatp", builtin()).floor() == 21);
}

TEST_CASE("vatp over the authors' Scissorhands: mean of the last rows, window of 10, 20 sinks") {
  const Run run = random_run({.prompt = 60, .decode = 20}, 4);
  const SlowRule rule = {
      [](const Run& r, const Attended& attended, Position j) {
        double sum = 0;
        for (std::size_t query = static_cast<std::size_t>(j); query < attended.size(); ++query)
          sum += query < r.prompt ? mean_row(r, query, j) / 60 : renormalised(r, attended, query, j);
        return sum * value_norm(r, j);
      },
      20, 10};
  CHECK(feed("vatp.scissorhands", run, 40).held == feed_slowly(rule, run, 40).held);
}

}  // namespace kvsim::policy::test::test_eviction_vatp
