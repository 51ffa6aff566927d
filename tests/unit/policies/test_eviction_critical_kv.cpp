#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "policies/parts/projected_norms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/slow_reference.hpp"

using namespace kvsim;
using namespace kvsim::policy;
using namespace kvsim::policy::test;
using Positions = std::vector<Position>;

namespace {

/// Mean over query heads of the L1 norm of the value after the output projection.
double moves(const Run& run, std::size_t j) {
  double sum = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    const auto lane = static_cast<std::size_t>(head / run.unit.group);
    for (std::size_t h = 0; h < kHidden; ++h) {
      double out = 0;
      for (std::size_t c = 0; c < 2; ++c)
        out += static_cast<double>(run.values[lane][j * 2 + c]) *
               static_cast<double>(run.output_weights[static_cast<std::size_t>(head)][c * kHidden + h]);
      sum += std::abs(out);
    }
  }
  return sum / run.unit.n_query_heads();
}

/// The stages over tova(window=1): its score is the last row.
Positions slow(const Run& run, std::size_t budget, double share, double epsilon) {
  const auto last = static_cast<Position>(run.prompt - 1);
  Positions rest, kept = {last};
  for (Position j = 0; j < last; ++j) rest.push_back(j);
  const auto take = [&](std::size_t up_to, auto score) {
    std::stable_sort(rest.begin(), rest.end(), [&](Position a, Position b) {
      return score(a) != score(b) ? score(a) > score(b) : a > b;
    });
    while (kept.size() < up_to && !rest.empty()) {
      kept.push_back(rest.front());
      rest.erase(rest.begin());
    }
  };
  const auto base = [&](Position j) { return mean_row(run, run.prompt - 1, j); };
  take(static_cast<std::size_t>(share * static_cast<double>(budget)), base);
  take(budget, [&](Position j) { return (base(j) + epsilon) * moves(run, static_cast<std::size_t>(j)); });
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace

TEST_CASE("norms after the projection are those of the whole product, tile by tile") {
  const std::size_t n = 19, dim = 5, hidden = 601;  // beyond a tile either way
  std::vector<float> values(n * dim), weights(dim * hidden);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(normal(combine({1, i})));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(normal(combine({2, i})));
  const std::vector<double> norms =
      projected_norms({values.data(), n, dim, dim}, {weights.data(), dim, hidden, hidden});
  for (std::size_t j = 0; j < n; ++j) {
    double expected = 0;
    for (std::size_t h = 0; h < hidden; ++h) {
      double x = 0;
      for (std::size_t c = 0; c < dim; ++c)
        x += static_cast<double>(values[j * dim + c]) * static_cast<double>(weights[c * hidden + h]);
      expected += std::abs(x);
    }
    CHECK(norms[j] == Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("critical_kv spends half on attention and half on what moves the output, worked by hand") {
  Run run = blank_run({.prompt = 5, .decode = 1, .n_lanes = 1, .group = 1});
  // Attention 0.4 0.3 0.1 0.15 0.05 (the newest stays); values (v, 0) with v = 1 1 4 2 1, projected on ones.
  const std::vector<float> row = {0.4F, 0.3F, 0.1F, 0.15F, 0.05F}, value = {1, 1, 4, 2, 1};
  for (std::size_t j = 0; j < 5; ++j) run.p(0, 4, j) = row[j], run.values[0][j * 2] = value[j];
  for (std::size_t h = 0; h < kHidden; ++h) run.output_weights[0][h] = 1;
  // Budget 4: the base keeps 0 and 4; then 0.3, 0.4 and 0.3 (up to epsilon) times the width: 2 and, of equal
  // 1 and 3, where epsilon counts twice, 3.
  const std::string policy = "critical_kv(base=tova(window=1,unit=lane))";
  const Fed fed = feed(policy, run, 4);
  CHECK(fed.kept == Positions{0, 2, 3, 4});
  CHECK(fed.held[0] == Positions{0, 2, 3, 4, 5});
  CHECK(feed("critical_kv(base=tova(window=1,unit=lane),first_stage=1)", run, 4).kept ==
        Positions{0, 1, 3, 4});
}

TEST_CASE("critical_kv agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const int lanes = 1 + static_cast<int>(seed % 2);
    Run run = random_run({.prompt = 5 + seed % 13, .decode = 1, .n_lanes = lanes, .group = 2}, seed);
    for (auto* tensor : {&run.values, &run.output_weights})
      for (std::vector<float>& rows : *tensor)
        for (float& x : rows) x = 2 * x - 1;
    const double share = static_cast<double>(seed % 5) / 4, epsilon = seed % 3 == 0 ? 0.0001 : 0.5;
    const std::string policy = std::string("critical_kv(base=tova(window=1,unit=") +
                               (lanes == 1 ? "lane" : "layer") + "),first_stage=" + std::to_string(share) +
                               ",epsilon=" + std::to_string(epsilon) + ")";
    for (std::size_t budget = 1; budget < run.prompt + 1; ++budget) {
      CAPTURE(policy, seed, budget);
      CHECK(feed(policy, run, budget).kept == slow(run, budget, share, epsilon));
    }
  }
}

TEST_CASE("when every value moves the output alike critical_kv is its base") {
  Run run = random_run({.prompt = 60, .decode = 0, .n_lanes = 1, .group = 2}, 5);
  for (std::vector<float>& rows : run.values) std::fill(rows.begin(), rows.end(), 1.0F);
  for (std::size_t budget = 32; budget < 60; ++budget)
    CHECK(feed("critical_kv", run, budget).kept == feed("snapkv", run, budget).kept);
}

TEST_CASE("critical_kv needs what its base needs, and a base that ranks the prompt at its end") {
  const auto needs = [](const std::string& text) {
    return parse_composition(text, builtin()).eviction.needs();
  };
  CHECK(needs("critical_kv").prompt_rows == RowNeed::window);
  CHECK(needs("critical_kv(base=h2o)").prompt_rows == RowNeed::all);
  CHECK_FALSE(needs("critical_kv(base=h2o)").decode_rows);
  CHECK(needs("critical_kv(base=expected_attention)").queries);
  CHECK_THROWS_WITH(parse_composition("critical_kv(base=h2o(prompt=stream))", builtin()),
                    Catch::Contains("token by token"));
}
