// Scores of a second pass, here a table in memory: kvzip, and one threshold for all lanes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_kvzip {

using Positions = std::vector<Position>;

namespace {

constexpr float kKept = std::numeric_limits<float>::max();

/// By dataset: [group, prompt] of the one KV head.
struct PassTables final : Tables {
  std::map<std::string, std::vector<float>> of;
  explicit PassTables(std::map<std::string, std::vector<float>> tables) : of(std::move(tables)) {}
  std::vector<float> row(std::string_view, std::string_view, int, int) const override { return {}; }
  std::vector<float> of_head(std::string_view file, std::string_view dataset, int, int,
                             std::span<const std::size_t> dims) const override {
    CHECK(dims.size() == 2);
    CHECK(dims[1] == kPositions);
    asked = std::string(file) + ":" + std::string(dataset);
    return of.at(std::string(dataset));
  }
  std::vector<std::vector<double>> matrix(std::string_view) const override { return {}; }
  mutable std::string asked;
};

std::vector<double> scores_of(const std::string& policy, Run run, const PassTables& tables) {
  run.unit.tables = &tables;
  const auto eviction = parse_composition(policy, builtin()).eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  return {eviction->scores().begin(), eviction->scores().end()};
}

}  // namespace

TEST_CASE("kvzip: the largest of the group's heads, by hand") {
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 2});
  const PassTables tables({{"4/attention", {.6F, .1F, .2F, .3F, .2F, .5F, .1F, .4F}}});
  CHECK(scores_of("kvzip", run, tables) == std::vector<double>{.6F, .5F, .2F, .4F});
  CHECK(tables.asked == "run:4/attention");
  run.unit.tables = &tables;
  const Fed fed = feed("kvzip(file=x.h5)", run, 2);
  CHECK(tables.asked == "x.h5:4/attention");
  CHECK(fed.kept == Positions{0, 1});
  CHECK(fed.held == std::vector<Positions>{{0, 1, 4}, {0, 1, 4, 5}});  // generated tokens are appended
  CHECK(feed("kvzip", run, 3).kept == Positions{0, 1, 3});
  CHECK(feed("kvzip(sinks=3)", run, 3).kept == Positions{0, 1, 2});
}

TEST_CASE("kvzip keeps what the model was not asked to repeat") {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 1});
  const PassTables tables({{"4/attention", {kKept, .9F, .2F, kKept}}, {"4/scaled", {kKept, 9, 2, kKept}}});
  CHECK(scores_of("kvzip", run, tables) == std::vector<double>{.9F + 1., .9F, .2F, .9F + 1.});
  run.unit.tables = &tables;
  CHECK(feed("kvzip", run, 2).kept == Positions{0, 3});
  CHECK(feed("kvzip", run, 3).kept == Positions{0, 1, 3});
}

TEST_CASE("kvzip(plus=true): times the length of the projected value, head by head") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 5 + seed, .decode = 0, .n_lanes = 1, .group = 2}, seed);
    std::vector<float> scaled(2 * run.prompt);
    for (std::size_t i = 0; i < scaled.size(); ++i)
      scaled[i] = static_cast<float>(uniform01(combine({seed, i})));
    const PassTables tables({{std::to_string(run.prompt) + "/scaled", scaled}});
    const std::vector<double> got = scores_of("kvzip(plus=true)", run, tables);
    const auto dim = static_cast<std::size_t>(run.unit.value_dim);
    for (std::size_t j = 0; j < run.prompt; ++j) {
      double expected = 0;
      for (std::size_t g = 0; g < 2; ++g) {
        double squares = 0;
        for (std::size_t h = 0; h < kHidden; ++h) {
          double x = 0;
          for (std::size_t c = 0; c < dim; ++c)
            x += static_cast<double>(run.values[0][j * dim + c]) *
                 static_cast<double>(run.output_weights[g][c * kHidden + h]);
          squares += x * x;
        }
        expected = std::max(expected, static_cast<double>(scaled[g * run.prompt + j]) * std::sqrt(squares));
      }
      CHECK(got[j] == Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("kvzip refuses a pass over another prompt") {
  const Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 1});
  const PassTables tables({{"4/attention", {1, 2, 3}}});
  CHECK_THROWS_WITH(scores_of("kvzip(file=x.h5)", run, tables),
                    Catch::Contains("has 3 positions, the prompt 4"));
}

namespace {

AllocationRequest request_of(std::vector<std::vector<double>> scores, std::size_t heads, std::size_t budget,
                             std::size_t floor) {
  AllocationRequest request{.n_layers = scores.size() / heads,
                            .n_kv_heads = heads,
                            .prompt = scores[0].size(),
                            .budget = budget,
                            .floor = floor};
  request.scores = std::move(scores);
  return request;
}

}  // namespace

TEST_CASE("one_threshold by hand") {
  // Two layers of two heads, one token each at least, eight in all: of the twelve other scores the four
  // largest are 9, 8 of the first head and 7, 6 of the last.
  CHECK(allocate("one_threshold", request_of({{10, 9, 8, 0}, {5, 4, 0, 0}, {3, 0, 0, 0}, {7.5, 7, 6, 1}}, 2,
                                             2, 1)) == Tokens{3, 1, 1, 3});
  // Equal scores: the first lane's count first, as far as it has room.
  CHECK(allocate("one_threshold", request_of({{1, 1, 1}, {1, 1, 1}}, 1, 2, 1)) == Tokens{3, 1});
  CHECK(allocate("one_threshold", request_of({{1, 2}, {3, 4}}, 1, 2, 1)) == Tokens{2, 2});
  CHECK(allocate("one_threshold", request_of({{1, 2}, {3, 4}}, 1, 1, 1)) == Tokens{1, 1});
}

TEST_CASE("one_threshold keeps the largest scores of the model, and no split keeps a larger sum") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::size_t heads = 1 + seed % 3, layers = 1 + seed % 4, n = 5 + seed % 7, budget = 2 + seed % 3;
    std::vector<std::vector<double>> scores(layers * heads, std::vector<double>(n));
    std::vector<double> rest;
    for (std::size_t lane = 0; lane < scores.size(); ++lane) {
      for (std::size_t j = 0; j < n; ++j) scores[lane][j] = uniform01(combine({seed, lane, j}));
      std::vector<double> falling = scores[lane];
      std::sort(falling.rbegin(), falling.rend());
      rest.insert(rest.end(), falling.begin() + 1, falling.end());
    }
    std::sort(rest.rbegin(), rest.rend());
    const double threshold = rest[(budget - 1) * scores.size() - 1];
    const Tokens tokens = allocate("one_threshold", request_of(scores, heads, budget, 1));
    CAPTURE(seed);
    CHECK(total(tokens, n) == budget * scores.size());
    for (std::size_t lane = 0; lane < scores.size(); ++lane)
      CHECK(tokens[lane] ==
            std::max<std::size_t>(1, static_cast<std::size_t>(std::ranges::count_if(
                                         scores[lane], [&](double x) { return x >= threshold; }))));
    // Within a single layer it is adakv without a share for each head.
    if (layers == 1) CHECK(tokens == allocate("adakv(alpha=0)", request_of(scores, heads, budget, 1)));
  }
}

}  // namespace kvsim::policy::test::test_eviction_kvzip
