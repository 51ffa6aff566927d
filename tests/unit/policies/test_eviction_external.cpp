// Scores and masks from a file, here replaced by a table in memory.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_external {

using Catch::Contains;
using Positions = std::vector<Position>;

namespace {

/// One row per lane; records the requests.
struct MemoryTables final : Tables {
  std::vector<std::vector<float>> rows;
  explicit MemoryTables(std::vector<std::vector<float>> r) : rows(std::move(r)) {}
  std::vector<float> row(std::string_view file, std::string_view dataset, int layer,
                         int kv_head) const override {
    asked = std::string(file) + ":" + std::string(dataset) + ":" + std::to_string(layer);
    return rows.at(static_cast<std::size_t>(kv_head));
  }
  std::vector<std::vector<double>> matrix(std::string_view) const override { return {}; }
  mutable std::string asked;
};

Fed feed_table(const std::string& policy, Run run, const std::vector<std::vector<float>>& rows,
               std::size_t budget) {
  const MemoryTables tables(rows);
  run.unit.tables = &tables;
  return feed(policy, run, budget);
}

/// One lane, without attention, keys and values.
Fed feed_row(const std::string& policy, std::size_t prompt, std::size_t decode, const std::vector<float>& row,
             std::size_t budget) {
  return feed_table(policy, blank_run({.prompt = prompt, .decode = decode, .n_lanes = 1, .group = 1}), {row},
                    budget);
}

std::vector<float> random_row(std::size_t n, std::uint64_t seed, int levels) {
  const Run run = random_run({.prompt = n, .decode = 0, .n_lanes = 1, .group = 1}, seed, levels);
  std::vector<float> out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(run.keys[0][i * 3] - 0.5F);
  return out;
}

}  // namespace

TEST_CASE("external_scores keeps the highest scores, worked by hand") {
  // Budget 3 of 1 5 2 4 | 9 0: of the prompt 1, 2, 3 are kept. Covering the prompt alone: the rest is
  // appended.
  CHECK(feed_row("external_scores(file=x)", 4, 2, {1, 5, 2, 4}, 3).held ==
        std::vector<Positions>{{1, 2, 3, 4}, {1, 2, 3, 4, 5}});
  // Covering everything: 4 takes the place of 2 (score 2), 5 that of 3 (score 4).
  const Fed fed = feed_row("external_scores(file=x)", 4, 2, {1, 5, 2, 4, 9, 0}, 3);
  CHECK(fed.kept == Positions{1, 2, 3});
  CHECK(fed.held == std::vector<Positions>{{1, 3, 4}, {1, 4, 5}});
  // Position 0 a sink, position 3 the window: one free slot, for 1.
  CHECK(feed_row("external_scores(file=x,sinks=1,window=1)", 4, 0, {1, 5, 2, 4}, 3).kept ==
        Positions{0, 1, 3});
  // Pages of 2: means 3 and 3, the older is evicted first.
  CHECK(feed_row("external_scores(file=x,granularity=2)", 4, 0, {1, 5, 2, 4}, 3).kept == Positions{2, 3});
}

TEST_CASE("external_scores agrees with its definition, ties and protection included") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::size_t prompt = 3 + seed % 9, decode = 8, sinks = seed % 3, window = seed % 4;
    const std::vector<float> row = random_row(prompt + decode, seed, seed % 2 == 0 ? 3 : 1000000);
    const auto score = [&](const Run&, const Attended&, Position j) {
      return static_cast<double>(row[static_cast<std::size_t>(j)]);
    };
    const Run run = blank_run({.prompt = prompt, .decode = decode, .n_lanes = 1, .group = 1});
    for (std::size_t budget = sinks + std::max<std::size_t>(window, 1); budget < 14; ++budget) {
      for (const bool newest : {false, true}) {
        const std::string policy = "external_scores(file=x,sinks=" + std::to_string(sinks) +
                                   ",window=" + std::to_string(window) +
                                   ",tie=" + (newest ? "newest" : "oldest") + ")";
        const Fed slow = feed_slowly({score, sinks, window, newest}, run, budget);
        const Fed fast = feed_table(policy, run, {row}, budget);
        CAPTURE(policy, seed, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
    }
  }
}

TEST_CASE("a score that a policy computes and the same score from a file decide the same") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 20, .decode = 10, .n_lanes = 1, .group = 1}, seed);
    std::vector<float> row;
    for (std::size_t j = 0; j < run.length(); ++j) {
      double squares = 0;
      for (std::size_t c = 0; c < 3; ++c) squares += std::pow(static_cast<double>(run.keys[0][j * 3 + c]), 2);
      row.push_back(static_cast<float>(-std::sqrt(squares)));
    }
    for (std::size_t budget = 1; budget < 25; budget += 4)
      CHECK(feed_table("external_scores(file=x)", run, {row}, budget).held ==
            feed("l2_norm", run, budget).held);
  }
}

TEST_CASE("external_scores per layer ranks by the mean over the heads") {
  // Heads 4 0 0 | 0 3 1: means 2, 1.5, 0.5.
  const Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 2, .group = 1});
  CHECK(feed_table("external_scores(file=x,unit=layer)", run, {{4, 0, 0}, {0, 3, 1}}, 2).kept ==
        Positions{0, 1});
}

TEST_CASE("external_mask keeps what the mask says, worked by hand") {
  CHECK(feed_row("external_mask(file=x)", 5, 2, {0, 1, 0, 0, 1}, 1).held ==
        std::vector<Positions>{{1, 4, 5}, {1, 4, 5, 6}});
  // Flags of generated tokens 5, 6, 7, 8: 0 1 0 0. Each attends itself; 5 is evicted before 6 attends, 7
  // before 8.
  const Fed fed = feed_row("external_mask(file=x)", 5, 4, {0, 1, 0, 0, 1, 0, 1, 0, 0}, 1);
  CHECK(fed.kept == Positions{1, 4});
  CHECK(fed.held == std::vector<Positions>{{1, 4, 5}, {1, 4, 6}, {1, 4, 6, 7}, {1, 4, 6, 8}});
  // No token kept, then every token kept.
  CHECK(feed_row("external_mask(file=x)", 3, 2, {0, 0, 0, 0, 0}, 1).held == std::vector<Positions>{{3}, {4}});
  CHECK(feed_row("external_mask(file=x)", 3, 2, {1, 1, 1, 1, 1}, 1).held.back().size() == 5);
}

TEST_CASE("external_mask holds, at every step, the flagged tokens so far and the newest token") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::size_t prompt = 1 + seed % 7, decode = 9;
    std::vector<float> mask = random_row(prompt + decode, seed, 1000);
    for (float& x : mask) x = x > 0 ? 1.0F : 0.0F;
    const Fed fed = feed_row("external_mask(file=x)", prompt, decode, mask, 1);
    for (std::size_t s = 0; s < decode; ++s) {
      Positions expected;
      for (std::size_t j = 0; j < prompt + s; ++j)
        if (mask[j] == 1) expected.push_back(static_cast<Position>(j));
      expected.push_back(static_cast<Position>(prompt + s));
      CHECK(fed.held[s] == expected);
    }
  }
}

TEST_CASE("external_schedule holds every token to the step that the file says, worked by hand") {
  // Of the prompt 0 1 2 3, 1 is not kept. 3 leaves at step 1, when 4 arrives, 2 at step 2 and 4 at step 3.
  const Fed fed = feed_row("external_schedule(file=x)", 4, 3, {4, 0, 2, 1, 3, 4, 4}, 1);
  CHECK(fed.kept == Positions{0, 2, 3});
  CHECK(fed.held == std::vector<Positions>{{0, 2, 4}, {0, 4, 5}, {0, 5, 6}});
  // Several leave at once, and 3 holds nothing but itself.
  CHECK(feed_row("external_schedule(file=x)", 3, 1, {1, 1, 1, 2}, 1).held == std::vector<Positions>{{3}});
  CHECK_THROWS_WITH(feed_row("external_schedule(file=f.h5)", 4, 2, {3, 3, 3, 3, 3}, 2),
                    Contains("f.h5:/cells/0000/last_step: covers 5 positions, the run has more"));
}

TEST_CASE("the cell of external_schedule names its dataset") {
  const MemoryTables tables({{1, 0, 1}});
  Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 1, .group = 1});
  run.unit.tables = &tables;
  CHECK(feed("external_schedule(file=a.h5,cell=12)", run, 1).kept == Positions{0, 2});
  CHECK(tables.asked == "a.h5:cells/0012/last_step:0");
}

TEST_CASE("the lane's own row of the named dataset is read") {
  const MemoryTables tables({{}, {}, {3, 1, 2}});
  Run run = blank_run({.prompt = 3, .decode = 0, .n_lanes = 1, .group = 1});
  run.unit.tables = &tables;
  run.unit.layer = 5;
  run.unit.first_kv_head = 2;
  CHECK(feed("external_scores(file=a/b.h5,dataset=run/locret)", run, 1).kept == Positions{0});
  CHECK(tables.asked == "a/b.h5:run/locret:5");
}

TEST_CASE("tables that do not fit the run are refused with file and dataset") {
  CHECK_THROWS_WITH(feed_row("external_scores(file=f.h5)", 4, 0, {1, 2, 3}, 2),
                    Contains("f.h5:/scores: covers 3 positions, the prompt has 4"));
  CHECK_THROWS_WITH(feed_row("external_scores(file=f.h5)", 4, 3, {1, 2, 3, 4, 5}, 2),
                    Contains("covers 5 positions, the run has more"));
  CHECK_THROWS_WITH(feed_row("external_mask(file=f.h5,dataset=d)", 2, 1, {1, 0.5F}, 2),
                    Contains("f.h5:/d: position 1 is neither 0 nor 1"));
  CHECK_THROWS_WITH(feed("external_mask(file=x)", blank_run({}), 2), Contains("no files can be read"));
  CHECK_THROWS_WITH(parse_composition("external_scores", builtin()),
                    Contains("external_scores needs file=..."));
}

}  // namespace kvsim::policy::test::test_eviction_external
