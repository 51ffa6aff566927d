// The figure of drift through the layers, from rows by hand.
#include <catch2/catch.hpp>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/statistics/answer_statistics.hpp"

namespace kvsim::analysis::test_drift_figure {

using Catch::Contains;

namespace {

/// Rows of one answer: |h' - h| / |h| after each layer, its cosine 1 minus that, and queries that follow.
void add(Records& to, const std::string& item, const std::string& policy, const std::string& cut,
         const std::vector<double>& drift, const std::string& budget = "10%") {
  for (std::size_t layer = 0; layer < drift.size(); ++layer)
    to.rows.push_back({item, std::string("keys"), policy, policy + "()+uniform()", budget, std::uint64_t{10},
                       cut, std::uint64_t{layer}, drift[layer], 1 - drift[layer], 2 * drift[layer]});
}

FigureTables tables_of(Records rows) {
  FigureTables tables;
  tables.tables[kDriftTable] = std::move(rows);
  return tables;
}

const Chart& chart(const Figure& figure, std::size_t panel = 0) {
  return std::get<Chart>(figure.panels.at(panel).content);
}

std::vector<double> heights(const Series& series) {
  std::vector<double> out;
  for (const Point& point : series.points) out.push_back(point.y);
  return out;
}

}  // namespace

TEST_CASE("drift: means over items, the least drift at the end first, and no full cache") {
  Records rows{drift_columns(), {}};
  add(rows, "k0", "early", "prompt", {0.5, 0.25});
  add(rows, "k1", "early", "prompt", {1.0, 0.75});
  add(rows, "k0", "late", "prompt", {0.125, 0.25});
  add(rows, "k1", "late", "prompt", {0.125, 0.125});
  add(rows, "k0", "full", "prompt", {0, 0});
  add(rows, "k0", "late", "prompt", {0.5, 0.5}, "20%");
  // A cell that was not run has no layer.
  rows.rows.push_back({std::string("k0"), std::string("keys"), std::string("none"), std::string("none()"),
                       std::string("10%"), Value(), std::string("prompt"), Value(), Value(), Value(),
                       Value()});
  const FigureTables tables = tables_of(rows);
  const std::vector<Figure> figures = figure_kind("drift").build(tables, {});
  REQUIRE(figures.size() == 1);
  const Chart& shown = chart(figures[0]);
  REQUIRE(shown.series.size() == 2);
  CHECK((shown.series[0].label == "late" && heights(shown.series[0]) == std::vector<double>{0.125, 0.1875}));
  CHECK((shown.series[1].label == "early" && heights(shown.series[1]) == std::vector<double>{0.75, 0.5}));
  CHECK(shown.x.categories == std::vector<std::string>{"0", "1"});
  CHECK(figures[0].panels[0].title == "question known, 2 items");
  CHECK_THAT(figures[0].title, Contains("at 10% of the prompt"));
  CHECK(figures[0].command == "kvsim plot drift DIR --metric residual_l2 --budget 10%");
  CHECK(figures[0].data.rows.size() == 4);

  // Of a cosine the largest is nearest.
  const std::vector<Figure> cosine = figure_kind("drift").build(tables, {.metric = "residual_cosine"});
  CHECK(chart(cosine.at(0)).series.at(0).label == "late");
  CHECK(heights(chart(cosine[0]).series[1]) == std::vector<double>{0.25, 0.5});
  CHECK(heights(chart(figure_kind("drift").build(tables, {.metric = "query_l2"}).at(0)).series[1]) ==
        std::vector<double>{1.5, 1.0});
  CHECK(heights(chart(figure_kind("drift").build(tables, {.budget = "20%"}).at(0)).series.at(0)) ==
        std::vector<double>{0.5, 0.5});
}

TEST_CASE("drift: a panel per cut, one colour per policy; a choice leaves the others grey") {
  Records rows{drift_columns(), {}};
  add(rows, "k0", "a", "prompt", {0.25, 0.5});
  add(rows, "k0", "b", "prompt", {0.5, 0.75});
  add(rows, "k0", "a", "question", {0.5, 1.0});
  add(rows, "k0", "b", "question", {0.25, 0.25});
  const FigureTables tables = tables_of(rows);
  const Figure both = figure_kind("drift").build(tables, {}).at(0);
  REQUIRE(both.panels.size() == 2);
  CHECK(both.panels[1].title == "question not known, 1 item");
  for (std::size_t panel = 0; panel < 2; ++panel)
    for (const Series& series : chart(both, panel).series) CHECK(series.policy == series.label);
  const Figure one = figure_kind("drift").build(tables, {.cut = "question", .policies = {"b"}}).at(0);
  REQUIRE(one.panels.size() == 1);
  CHECK((chart(one).series[0].label == "b" && chart(one).series[1].weight == Weight::faint));
  CHECK(one.remark == "Grey: the other policy.");

  CHECK_THROWS_WITH(figures_of(figure_kind("drift"), tables, {.cut = "questoin"}),
                    Contains("Did you mean question?"));
  CHECK_THROWS_WITH(figure_kind("drift").build(tables, {.policies = {"c"}}), Contains("--policy"));
  CHECK_THROWS_WITH(figure_kind("drift").build(tables, {.metric = "query_l1"}),
                    Contains("Did you mean query_l2?"));
}

TEST_CASE("drift: one layer has no line, and the full cache alone nothing to draw") {
  Records rows{drift_columns(), {}};
  add(rows, "k0", "full", "prompt", {0});
  CHECK(figure_kind("drift").build(tables_of(rows), {}).empty());
  add(rows, "k0", "a", "prompt", {0.25});
  CHECK(figure_kind("drift").build(tables_of(rows), {}).at(0).remark == "One layer, so points and no lines.");
}

namespace {

/// Rows of one answer, as of kvsim evaluate --per token: the KL of each token.
void add_tokens(Records& to, const std::string& item, const std::string& policy,
                const std::vector<double>& kl) {
  for (std::size_t token = 0; token < kl.size(); ++token)
    to.rows.push_back({item, std::string("summary"), policy, policy + "()+uniform()", std::string("10%"),
                       std::uint64_t{10}, std::string("prompt"), std::uint64_t{token}, kl[token],
                       4 * kl[token], std::uint64_t{kl[token] < 1 ? 1U : 0U}});
}

Figure along(const Records& rows, const FigureChoice& choice = {}) {
  FigureTables tables;
  tables.tables[kTokensTable] = rows;
  return figure_kind("along").build(tables, choice).at(0);
}

}  // namespace

TEST_CASE("along: means over the items that have the token, a curve per policy, the least divergence first") {
  Records rows{token_part_columns(), {}};
  add_tokens(rows, "s0", "far", {0.5, 1.5, 2.5});
  add_tokens(rows, "s1", "far", {1.5, 0.5});  // a shorter answer
  add_tokens(rows, "s0", "near", {0.25, 0.25, 0.5});
  add_tokens(rows, "s0", "full", {0, 0, 0});
  const Figure figure = along(rows);
  const Chart& shown = chart(figure);
  REQUIRE(shown.series.size() == 2);
  CHECK(
      (shown.series[0].label == "near" && heights(shown.series[0]) == std::vector<double>{0.25, 0.25, 0.5}));
  CHECK((shown.series[1].label == "far" && heights(shown.series[1]) == std::vector<double>{1, 1, 2.5}));
  CHECK(shown.series[1].points[2].x == 2);
  CHECK_THAT(figure.title, Contains("Divergence along the answer") && Contains("at 10% of the prompt"));
  CHECK(figure.command == "kvsim plot along DIR --metric kl --budget 10%");
  CHECK(heights(chart(along(rows, {.metric = "rank"})).series[1]) == std::vector<double>{4, 4, 10});
  CHECK(heights(chart(along(rows, {.metric = "same_top"})).series[1]) == std::vector<double>{0.5, 0.5, 0});
  CHECK_THROWS_WITH(along(rows, {.metric = "rnak"}), Contains("Did you mean rank?"));
}

TEST_CASE("along: a long answer has a point for as many tokens as make at most 32") {
  Records rows{token_part_columns(), {}};
  std::vector<double> kl(65);
  for (std::size_t token = 0; token < kl.size(); ++token) kl[token] = static_cast<double>(token);
  add_tokens(rows, "s0", "a", kl);
  const Series series = chart(along(rows)).series.at(0);
  REQUIRE(series.points.size() == 22);  // three tokens each, two at the end
  CHECK((series.points[0].x == 1 && series.points[0].y == 1));
  CHECK((series.points[20].x == 61 && series.points[20].y == 61));
  CHECK(series.points[21].y == 63.5);
}

}  // namespace kvsim::analysis::test_drift_figure
