#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_cur_dkv {

using Positions = std::vector<Position>;

namespace {

double squares(const std::vector<float>& rows, std::size_t j, std::size_t dim) {
  double sum = 0;
  for (std::size_t c = 0; c < dim; ++c)
    sum += static_cast<double>(rows[j * dim + c]) * static_cast<double>(rows[j * dim + c]);
  return sum;
}

}  // namespace

TEST_CASE("cur_dkv: squared lengths as shares of their block, by hand") {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 1});
  // Squared lengths 4, 1 | 9, 1 of keys and 1, 3 | 1, 1 of values; blocks of two. Shares .8 .2 | .9 .1 and
  // .25 .75 | .5 .5: products .2, .15, .45, .05.
  const std::size_t dim = static_cast<std::size_t>(run.unit.head_dim);
  const float keys[4] = {2, 1, 3, 1};
  std::fill(run.keys[0].begin(), run.keys[0].end(), 0.0F);
  std::fill(run.values[0].begin(), run.values[0].end(), 0.0F);
  for (std::size_t j = 0; j < 4; ++j) run.keys[0][j * dim] = keys[j];
  const float values[4] = {1, 1.7320508F, 1, 1};
  for (std::size_t j = 0; j < 4; ++j)
    run.values[0][j * static_cast<std::size_t>(run.unit.value_dim)] = values[j];
  const auto kept = [&](const std::string& rule, std::size_t budget) {
    return feed("cur_dkv(block=2,sinks=0" + rule + ")", run, budget).kept;
  };
  CHECK(kept("", 1) == Positions{2});
  CHECK(kept("", 2) == Positions{0, 2});
  CHECK(kept("", 3) == Positions{0, 1, 2});
  CHECK(kept(",of=keys", 2) == Positions{0, 2});
  CHECK(kept(",of=values", 1) == Positions{1});
  // One block: keys 4, 1, 9, 1 of 15, values 1, 3, 1, 1 of 6.
  CHECK(feed("cur_dkv(block=16,sinks=0)", run, 2).kept == Positions{0, 2});
  CHECK(feed("cur_dkv(block=2,sinks=1)", run, 2).kept == Positions{0, 2});
  CHECK(feed("cur_dkv(block=2,sinks=4)", run, 4).kept == Positions{0, 1, 2, 3});
}

TEST_CASE("cur_dkv agrees with shares that are computed token by token") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::size_t prompt = 3 + seed, block = 2 + seed % 6;
    const Run run = random_run({.prompt = prompt, .decode = 2, .n_lanes = 1, .group = 2}, seed);
    std::vector<double> score(prompt);
    for (std::size_t j = 0; j < prompt; ++j) {
      double keys = 0, values = 0;
      for (std::size_t i = 0; i < prompt; ++i)
        if (i / block == j / block) {
          keys += squares(run.keys[0], i, static_cast<std::size_t>(run.unit.head_dim));
          values += squares(run.values[0], i, static_cast<std::size_t>(run.unit.value_dim));
        }
      score[j] = squares(run.keys[0], j, static_cast<std::size_t>(run.unit.head_dim)) / keys *
                 squares(run.values[0], j, static_cast<std::size_t>(run.unit.value_dim)) / values;
    }
    std::vector<std::size_t> order(prompt);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    for (std::size_t budget = 1; budget <= prompt; budget += 2) {
      Positions best;
      for (std::size_t i = 0; i < budget; ++i) best.push_back(static_cast<Position>(order[i]));
      std::sort(best.begin(), best.end());
      CAPTURE(seed, block, budget);
      CHECK(feed("cur_dkv(sinks=0,block=" + std::to_string(block) + ")", run, budget).kept == best);
    }
  }
}

}  // namespace kvsim::policy::test::test_eviction_cur_dkv
