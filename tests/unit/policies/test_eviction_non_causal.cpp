#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_non_causal {

using Positions = std::vector<Position>;

namespace {

/// Attention of row i on key j within its chunk, from exponentials.
double attention(const Run& run, int head, std::size_t i, std::size_t j, std::size_t chunk, double scale) {
  const auto dim = static_cast<std::size_t>(run.unit.head_dim);
  const auto weight = [&](std::size_t key) {
    double product = 0;
    for (std::size_t c = 0; c < dim; ++c)
      product += static_cast<double>(run.queries[static_cast<std::size_t>(head)][i * dim + c]) *
                 static_cast<double>(run.keys[0][key * dim + c]);
    return std::exp(scale * product);
  };
  double all = 0;
  for (std::size_t key = 0; key < run.prompt; ++key)
    if (key / chunk == i / chunk) all += weight(key);
  return i / chunk == j / chunk ? weight(j) / all : 0;
}

std::vector<double> reference(const Run& run, std::size_t chunk, double scale) {
  std::vector<double> out(run.prompt);
  const auto dim = static_cast<std::size_t>(run.unit.value_dim);
  for (std::size_t j = 0; j < run.prompt; ++j) {
    double squares = 0;
    for (std::size_t c = 0; c < dim; ++c)
      squares +=
          static_cast<double>(run.values[0][j * dim + c]) * static_cast<double>(run.values[0][j * dim + c]);
    for (int head = 0; head < run.unit.group; ++head)
      for (std::size_t i = 0; i < run.prompt; ++i)
        out[j] += attention(run, head, i, j, chunk, scale) / run.unit.group * std::sqrt(squares);
  }
  return out;
}

}  // namespace

TEST_CASE("non_causal by hand: rows see later keys of their chunk, and none of another") {
  Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 1, .group = 1});
  const auto dim = static_cast<std::size_t>(run.unit.head_dim),
             of = static_cast<std::size_t>(run.unit.value_dim);
  std::fill(run.queries[0].begin(), run.queries[0].end(), 0.0F);
  std::fill(run.keys[0].begin(), run.keys[0].end(), 0.0F);
  std::fill(run.values[0].begin(), run.values[0].end(), 0.0F);
  // Row 0 looks for key 1, which follows it: weights 1 : 3 with a logit of ln 3. Rows 1 and 2 look for none.
  run.queries[0][0] = 1;
  run.keys[0][dim] = std::log(3.0F);
  for (std::size_t j = 0; j < 3; ++j) run.values[0][j * of] = 1;
  // Chunks of two: keys 0 and 1 get 1/4 + 1/2 and 3/4 + 1/2, key 2, alone, 1.
  const auto scores = [&](const std::string& rule) {
    const auto eviction = parse_composition(rule, builtin()).eviction.make_eviction(run.unit);
    feed_prompt(*eviction, run);
    return std::vector<double>(eviction->scores().begin(), eviction->scores().end());
  };
  const std::vector<double> apart = scores("non_causal(chunk=2,pool=none)");
  CHECK(apart[0] == Approx(0.75));
  CHECK(apart[1] == Approx(1.25));
  CHECK(apart[2] == Approx(1.0));
  // One chunk: row 0 gives 1/5, 3/5, 1/5, the others a third each.
  const std::vector<double> together = scores("non_causal(chunk=3,pool=none)");
  CHECK(together[0] == Approx(0.2 + 2 / 3.0));
  CHECK(together[1] == Approx(0.6 + 2 / 3.0));
  // Values of length 2 count twice.
  run.values[0][2 * of] = 2;
  CHECK(scores("non_causal(chunk=2,pool=none)")[2] == Approx(2.0));
}

TEST_CASE("non_causal agrees with exponentials over every chunk") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::size_t prompt = 4 + seed, chunk = 1 + seed % 6;
    const Run run = random_run({.prompt = prompt, .decode = 2, .n_lanes = 1, .group = 2}, seed);
    for (const bool scaled : {false, true}) {
      const std::vector<double> expected = reference(run, chunk, scaled ? kScale : 1);
      const auto eviction = parse_composition("non_causal(pool=none,chunk=" + std::to_string(chunk) +
                                                  ",scaled=" + (scaled ? "true" : "false") + ")",
                                              builtin())
                                .eviction.make_eviction(run.unit);
      feed_prompt(*eviction, run);
      CAPTURE(seed, chunk, scaled);
      for (std::size_t j = 0; j < prompt; ++j) CHECK(eviction->scores()[j] == Approx(expected[j]));
    }
  }
}

}  // namespace kvsim::policy::test::test_eviction_non_causal
