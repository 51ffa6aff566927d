// Figures of costs show the numbers of their rows.
#include <catch2/catch.hpp>

#include "analysis/cost/cost_rows.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_cost_figures {
namespace {

constexpr std::uint64_t kGib = 1ULL << 30;

/// A point of 16 GiB of weights and a cache of so many, whose prefill needs `activations` GiB more.
CostRow point(const std::string& policy, const std::string& budget, std::uint64_t prompt, std::uint64_t cache,
              std::uint64_t activations) {
  CostRow row{.model = "model", .machine = "machine", .policy = policy, .budget = budget, .prompt = prompt};
  row.machine_memory = 80 * kGib;
  row.generate = 100;
  row.batch = 1;
  cost::Estimate& estimate = row.estimate.emplace();
  estimate.budget = budget.empty() ? prompt : 2048;
  estimate.at_end.weights = estimate.prefill.weights = 16 * kGib;
  estimate.at_end.keys_values = estimate.prefill.keys_values = cache * kGib;
  estimate.prefill.activations = activations * kGib;
  estimate.fits = estimate.peak() <= row.machine_memory;
  estimate.time.first_token = 1e-3 * static_cast<double>(prompt);
  estimate.time.per_token = 0.01;
  estimate.time.mean_step[cost::OpClass::linear].seconds = 0.008;
  estimate.time.mean_step[cost::OpClass::attention].seconds = 0.002;
  return row;
}

FigureTables tables() {
  FigureTables out;
  out.tables["cost"] =
      cost_records({point("full", "", 8192, 1, 2), point("snapkv", "2K", 8192, 0, 2),
                    point("full", "", 131072, 16, 60), point("snapkv", "2K", 131072, 0, 60)});
  return out;
}

Figure only(const char* name, const FigureTables& tables, const FigureChoice& choice = {}) {
  const std::vector<Figure> figures = figure_kind(name).build(tables, choice);
  REQUIRE(figures.size() == 1);
  return figures.front();
}

TEST_CASE("Bars of memory lie end to end and add up") {
  const Figure figure = only("cost-memory", tables());
  REQUIRE(figure.panels.size() == 2);
  CHECK(figure.panels[1].title == "prompt 128K");
  const auto& bars = std::get<Timeline>(figure.panels[1].content);
  // Nothing is scratch or reserved anywhere: no colour for them.
  CHECK(bars.colours == std::vector<std::string>{"weights", "cache", "activations"});
  CHECK(bars.y.categories == std::vector<std::string>{"full, prefill", "full, at the end", "snapkv, prefill",
                                                      "snapkv, at the end"});
  CHECK(bars.x.line == 80.0);
  // 16 of weights, 16 of cache, 60 of activations.
  REQUIRE(bars.bars.size() >= 3);
  CHECK((bars.bars[0].begin == 0 && bars.bars[0].end == 16));
  CHECK((bars.bars[1].begin == 16 && bars.bars[1].end == 32));
  CHECK((bars.bars[2].begin == 32 && bars.bars[2].end == 92));
  CHECK(bars.bars[2].y == 0);
  // Two panels of four bars of three parts.
  CHECK(figure.data.rows.size() == 2 * 4 * 3);
  CHECK(figure.title == "Memory: model on machine, budget 2K, batch 1, 100 generated");
}

TEST_CASE("Bars of time are milliseconds") {
  const Figure figure = only("cost-time", tables());
  const auto& bars = std::get<Timeline>(figure.panels[0].content);
  CHECK(bars.colours == std::vector<std::string>{"linear", "attention"});
  CHECK(bars.bars[0].end == Approx(8));
  CHECK(bars.bars[1].end == Approx(10));
}

TEST_CASE("Curves over context end where memory does, but for that of memory") {
  const Figure figure = only("cost-context", tables());
  REQUIRE(figure.panels.size() == 3);
  const auto& first_token = std::get<Chart>(figure.panels[0].content);
  REQUIRE(first_token.series.size() == 2);
  REQUIRE(first_token.series[0].label == "full");
  CHECK(first_token.series[0].points.size() == 1);  // 92 GiB do not fit
  CHECK(first_token.series[1].points.size() == 2);
  CHECK(first_token.series[1].points[1].x == 128);
  CHECK(first_token.series[1].points[1].y == Approx(131.072));
  const auto& memory = std::get<Chart>(figure.panels[2].content);
  CHECK(memory.series[0].points[1].y == 92);
  CHECK(memory.y.line == 80.0);
  // A policy alone keeps its colour.
  const Figure alone = only("cost-context", tables(), {.policies = {"snapkv"}});
  CHECK(std::get<Chart>(alone.panels[0].content).series[0].policy == "snapkv");
}

TEST_CASE("Many curves stand in rows of panels and further figures; each says what the others show") {
  const auto sweep = [](std::size_t policies, std::size_t batches) {
    std::vector<CostRow> rows;
    for (std::size_t p = 0; p < policies; ++p)
      for (std::size_t b = 1; b <= batches; ++b)
        for (const std::uint64_t prompt : {8192, 16384}) {
          rows.push_back(point("p" + std::to_string(p), "2K", prompt, 1, 2));
          rows.back().batch = b;
        }
    FigureTables out;
    out.tables["cost"] = cost_records(rows);
    return out;
  };
  CHECK(only("cost-context", sweep(4, 2)).panels.size() == 3);  // eight curves
  const Figure rows = only("cost-context", sweep(3, 3));
  REQUIRE(rows.panels.size() == 9);
  CHECK(rows.columns == 3);
  CHECK(rows.panels[0].title == "batch 1: first token");
  CHECK(rows.panels[8].title == "batch 3: peak of memory");
  for (const Panel& panel : rows.panels) {
    const auto& chart = std::get<Chart>(panel.content);
    REQUIRE(chart.series.size() == 3);
    CHECK((chart.series[1].label == "p1" && chart.series[1].points.size() == 2));
  }
  CHECK(rows.remark.empty());

  // Ten policies, five batches: two groups of policies, each in two groups of rows.
  const std::vector<Figure> figures = figure_kind("cost-context").build(sweep(10, 5), {});
  REQUIRE(figures.size() == 4);
  CHECK((figures[0].name == "cost-context" && figures[3].name == "cost-context-4"));
  CHECK(figures[0].remark ==
        "At most 8 curves: p8, p9, and batch 5 are in other figures; --policy and --budget choose.");
  std::size_t points = 0;
  for (const Figure& figure : figures) {
    CHECK(figure.panels.size() <= 12);
    for (const Panel& panel : figure.panels) CHECK(std::get<Chart>(panel.content).series.size() <= 8);
    points += figure.data.rows.size();
  }
  CHECK(points == 3 * 10 * 5 * 2);  // nothing is left out
}

TEST_CASE("Nothing is drawn of what does not vary, and unknown names are refused") {
  CHECK(figure_kind("cost-batch").build(tables(), {}).empty());
  CHECK(figure_kind("cost-context").build({}, {}).empty());
  CHECK_THROWS_AS(figure_kind("cost-time").build(tables(), {.policies = {"snapkw"}}), Error);
}

TEST_CASE("Over budgets, what has a size of its own is a line across") {
  FigureTables of_budgets;
  std::vector<CostRow> rows{point("full", "", 8192, 1, 2), point("snapkv", "1K", 8192, 0, 2),
                            point("snapkv", "2K", 8192, 0, 2)};
  rows[1].estimate->budget = 1024;
  for (CostRow& row : rows) row.largest_batch = 10;
  of_budgets.tables["cost"] = cost_records(rows);
  const Figure figure = only("cost-budget", of_budgets);
  const auto& chart = std::get<Chart>(figure.panels[0].content);
  CHECK(chart.series[0].weight == Weight::bound);
  REQUIRE(chart.series[0].points.size() == 2);
  CHECK((chart.series[0].points[0].x == 1 && chart.series[0].points[1].x == 2));
  CHECK(chart.series[1].points.size() == 2);
}

TEST_CASE("Budgets that differ only because prompts do are no curve over budgets") {
  FigureTables of_prompts;
  std::vector<CostRow> rows{point("snapkv", "10%", 8192, 0, 2), point("snapkv", "10%", 131072, 0, 2)};
  rows[0].estimate->budget = 819;
  rows[1].estimate->budget = 13107;
  of_prompts.tables["cost"] = cost_records(rows);
  CHECK(figure_kind("cost-budget").build(of_prompts, {}).empty());
  CHECK(figure_kind("cost-context").build(of_prompts, {}).size() == 1);
}

TEST_CASE("The waterfall of a step: lines begin where those before end, and links hide beside them") {
  CHECK(figure_kind("cost-waterfall").build(tables(), {}).empty());  // nothing is loaded, nothing chosen
  CostRow row = point("full", "", 8192, 1, 2), plain = row;
  // 8 ms of products and 2 of attention, one of them choosing. 5 ms of loads, of which 3 are waited for; the
  // SSD's 4 ms are among them.
  cost::PassTime& step = row.estimate->time.mean_step;
  step.choosing = 0.001;
  step.links.host.seconds = step.loading = 0.005;
  step.links.ssd.seconds = 0.004;
  step.transfer = 0.003;
  row.estimate->time.per_token = 0.013;
  plain.policy = "other";
  FigureTables both;
  both.tables["cost"] = cost_records({row, plain});
  const Figure figure = only("cost-waterfall", both);
  REQUIRE(figure.panels.size() == 2);
  CHECK(figure.panels[0].title == "full: 13 ms");
  const auto& bars = std::get<Timeline>(figure.panels[0].content);
  CHECK(bars.y.categories == std::vector<std::string>{"choosing", "host link", "SSD", "attention", "linear"});
  CHECK(bars.x.high == Approx(13));
  struct Expected {
    double y, begin, end;
    int colour;
  };
  const std::vector<Expected> expected{{0, 0, 1, 0}, {1, 1, 4, 1}, {1, 4, 6, 2}, {2, 1, 4, 1},
                                       {2, 4, 5, 2}, {3, 4, 5, 0}, {4, 5, 13, 0}};
  REQUIRE(bars.bars.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(bars.bars[i].y == expected[i].y);
    CHECK(bars.bars[i].begin == Approx(expected[i].begin).margin(1e-12));
    CHECK(bars.bars[i].end == Approx(expected[i].end));
    CHECK(bars.bars[i].colour == expected[i].colour);
  }
  // What has nothing of a line has an empty one, so that panels compare.
  const auto& other = std::get<Timeline>(figure.panels[1].content);
  CHECK(other.y.categories == bars.y.categories);
  CHECK(other.bars.size() == 2);
}

}  // namespace
}  // namespace kvsim::analysis::test_cost_figures
