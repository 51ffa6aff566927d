// Figures of keys and attention: what becomes a curve, a cell, a remark.
#include <catch2/catch.hpp>

#include "analysis/drawing/gnuplot_script.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/figures/trace_tables.hpp"
#include "analysis/kinds/kind.hpp"

namespace kvsim::analysis::test_key_figures {

using Row = std::vector<Value>;
using Cells = std::vector<std::vector<std::optional<double>>>;

namespace {

Records table(const char* kind, std::vector<Row> rows) {
  Records out{kind_named(kind).columns, std::move(rows)};
  for (const Row& row : out.rows) REQUIRE(row.size() == out.columns.size());
  return out;
}

const Value kNone{};
Value n(std::uint64_t value) {
  return value;
}

const HeatMap& map_of(const Figure& figure, std::size_t panel) {
  return std::get<HeatMap>(figure.panels.at(panel).content);
}
const Chart& chart_of(const Figure& figure, std::size_t panel) {
  return std::get<Chart>(figure.panels.at(panel).content);
}

/// The figure of that name of a table, if there is one.
std::optional<Figure> drawn(const std::string& name, const Records& table) {
  const std::vector<Figure> figures = figure_kind(name).build({.tables = {{name, table}}}, {});
  return figures.empty() ? std::nullopt : std::optional(figures.front());
}

}  // namespace

TEST_CASE("means over traces: what has no value is left out and said") {
  const Records norms = table("key-norms", {{"a", n(0), n(0), 0.5, 0.25, 3.0, 1.0, kNone},
                                            {"a", n(0), n(1), kNone, -0.5, 3.0, 1.0, kNone},
                                            {"b", n(0), n(1), kNone, 0.0, 3.0, 1.0, kNone},
                                            {"b", n(0), n(0), -0.25, kNone, 3.0, 1.0, kNone}});
  const Records means = trace_means(norms, {"layer", "head"}, {"pearson", "spearman"});
  CHECK(means.rows == std::vector<Row>{{n(0), n(0), 0.125, 0.25}, {n(0), n(1), kNone, -0.25}});
  CHECK(means.columns[2].description == norms.columns[3].description);
  CHECK(means_remark(norms, {"pearson"}) == "Mean over 2 traces. 2 values are undefined and left out.");
  CHECK(means_remark(norms, {"norm_mean"}) == "Mean over 2 traces.");
  CHECK(analyze_command("key-norms", norms) == "kvsim analyze key-norms a b --format csv");
  const Figure figure = *drawn("key-norms", norms);
  REQUIRE(figure.panels.size() == 2);
  CHECK(map_of(figure, 0).rows == Cells{{0.125, {}}});
  CHECK(map_of(figure, 1).rows == Cells{{0.25, -0.25}});
  CHECK(map_of(figure, 0).diverging);
  CHECK(figure.data.rows == means.rows);
}

TEST_CASE("lanes are cells: layers down, heads across, gaps where nothing was measured") {
  const auto row = [](std::uint64_t layer, std::uint64_t head, double both) {
    return Row{"run.h5", n(layer), n(head), n(8), n(4), n(4), n(2), both / 4, 0.5};
  };
  const Figure figure = *drawn("persistence", table("persistence", {row(0, 0, 1), row(2, 1, 3)}));
  CHECK(map_of(figure, 0).rows == Cells{{0.25, {}}, {{}, {}}, {{}, 0.75}});
  CHECK(map_of(figure, 1).rows == Cells{{0.5, {}}, {{}, {}}, {{}, 0.5}});
  CHECK(map_of(figure, 0).y.categories.size() == 3);
  CHECK(figure.remark.empty());
  CHECK(figure.command == "kvsim analyze persistence run.h5 --format csv");
}

TEST_CASE("heads have three maps") {
  const Figure figure =
      *drawn("heads", table("heads", {{"a", n(0), n(0), n(96), 0.5, 0.25, 4.0, 0.75, 12.0, 0.5}}));
  REQUIRE(figure.panels.size() == 3);
  CHECK(map_of(figure, 0).rows == Cells{{0.5}});
  CHECK(map_of(figure, 1).rows == Cells{{0.25}});
  CHECK(map_of(figure, 2).rows == Cells{{0.75}});
}

TEST_CASE("rankings are rows, lanes columns") {
  const auto row = [](const char* ranking, std::uint64_t head, Value share) {
    return Row{"a", ranking, n(1), n(head), n(100), 7.0, 14.0, std::move(share)};
  };
  const Figure figure =
      *drawn("ranking-loss",
             table("ranking-loss", {row("hash", 0, 0.5), row("hash", 1, kNone), row("l2_norm", 1, 0.25)}));
  const HeatMap& map = map_of(figure, 0);
  CHECK(map.y.categories == std::vector<std::string>{"hash", "l2_norm"});
  CHECK(map.x.categories == std::vector<std::string>{"1.0", "1.1"});
  CHECK(map.rows == Cells{{0.5, {}}, {{}, 0.25}});
  CHECK(figure.remark == "1 value is undefined and left out.");
}

TEST_CASE("cumulative loss: a panel for all layers and one for each of some") {
  std::vector<Row> rows;
  const auto add = [&](const char* trace, const char* ranking, std::uint64_t layer, double loss) {
    for (const double dropped : {0.5, 0.25})
      rows.push_back({trace, ranking, n(layer), dropped, dropped * loss, dropped / 8});
  };
  add("a", "hash", 0, 1);
  add("a", "hash", 1, 0.5);
  add("b", "hash", 0, 1);
  add("b", "hash", 1, 0.5);
  add("a", "recency", 0, 1);
  add("a", "recency", 1, 1);
  const Figure figure = *drawn("cumulative-loss", table("cumulative-loss", rows));
  REQUIRE(figure.panels.size() == 3);
  const Chart& all = chart_of(figure, 0);
  REQUIRE(all.series.size() == 3);
  CHECK(all.series[0].label == "hash");
  CHECK(all.series[0].points[0].x == 0.25);  // ascending, whatever the table's order
  CHECK(all.series[0].points[0].y == 0.1875);
  CHECK(all.series[1].points[1].y == 0.5);
  CHECK(all.series[2].weight == Weight::bound);
  CHECK(all.series[2].points[1].y == 0.0625);
  CHECK(all.y.percent);
  CHECK(figure.panels[2].title == "layer 1");
  CHECK(chart_of(figure, 2).series[0].points[1].y == 0.25);
  SECTION("many layers: first, last and some between") {
    for (std::uint64_t layer = 2; layer < 9; ++layer) add("a", "hash", layer, 1);
    const Figure deep = *drawn("cumulative-loss", table("cumulative-loss", rows));
    std::string titles;
    for (const Panel& panel : deep.panels) titles += panel.title + ", ";
    CHECK(titles == "all layers, layer 0, layer 2, layer 4, layer 6, layer 8, ");
    CHECK_THAT(deep.remark, Catch::Contains("5 of 9 layers"));
  }
  SECTION("an undefined loss is no loss of zero") {
    rows.push_back({"a", "random", n(0), 0.5, kNone, 0.0625});
    const Chart chart = chart_of(*drawn("cumulative-loss", table("cumulative-loss", rows)), 0);
    REQUIRE(chart.series[2].label == "random");
    CHECK(chart.series[2].points.empty());
  }
  SECTION("more than everything is no share") {
    add("a", "random", 0, 3);
    CHECK_FALSE(chart_of(*drawn("cumulative-loss", table("cumulative-loss", rows)), 0).y.percent);
  }
}

TEST_CASE("hash correlation: traces in grey, their mean, noise as a bound") {
  const auto row = [](const char* trace, std::uint64_t bits, Value found, double noise) {
    return Row{trace, kNone, kNone, n(bits), std::move(found), kNone, n(8), n(0), noise, 0.1, kNone};
  };
  const Figure one = *drawn("hash", table("hash", {row("a", 16, 0.25, 0.5), row("a", 8, kNone, 0.25)}));
  REQUIRE(chart_of(one, 0).series.size() == 2);
  CHECK(chart_of(one, 0).series[0].points.size() == 1);  // a length without a value has no point
  CHECK(chart_of(one, 0).series[1].points[0].x == 8);
  const Figure two = *drawn("hash", table("hash", {row("a", 8, 0.25, 0.5), row("b", 8, 0.75, 0.25)}));
  REQUIRE(chart_of(two, 0).series.size() == 4);
  CHECK(chart_of(two, 0).series[0].weight == Weight::faint);
  CHECK(chart_of(two, 0).series[2].points[0].y == 0.5);
  CHECK(chart_of(two, 0).series[3].weight == Weight::bound);
  CHECK(chart_of(two, 0).series[3].points[0].y == 0.375);
}

TEST_CASE("hash correlation by layer is a curve per layer, by head a map per length") {
  const auto row = [](const char* trace, std::uint64_t layer, Value head, std::uint64_t bits, double found) {
    return Row{trace, n(layer), std::move(head), n(bits), found, kNone, n(8), n(0), 0.5, 0.1, kNone};
  };
  const Figure layers =
      *drawn("hash", table("hash", {row("a", 0, kNone, 8, 0.25), row("b", 0, kNone, 8, 0.75),
                                    row("a", 1, kNone, 8, 0.125)}));
  const Chart& chart = chart_of(layers, 0);
  REQUIRE(chart.series.size() == 3);
  CHECK(chart.series[0].label == "layer 0");
  CHECK(chart.series[0].points[0].y == 0.5);
  CHECK(chart.series[1].points[0].y == 0.125);
  CHECK(chart.series[2].weight == Weight::bound);
  const Figure heads =
      *drawn("hash", table("hash", {row("a", 0, n(0), 8, 0.25), row("b", 0, n(0), 8, 0.75),
                                    row("a", 1, n(1), 8, 0.125), row("a", 1, n(1), 16, 0.0625)}));
  REQUIRE(heads.panels.size() == 2);
  CHECK(heads.panels[0].title == "8 bits");
  const auto& map = std::get<HeatMap>(heads.panels[0].content);
  CHECK(map.rows[0][0] == 0.5);
  CHECK(map.rows[1][1] == 0.125);
  CHECK_FALSE(map.rows[0][1]);
}

TEST_CASE("empty tables have no figure; every other can be drawn") {
  CHECK_FALSE(drawn("hash", table("hash", {})));
  CHECK_FALSE(drawn("heads", table("heads", {})));
  CHECK_FALSE(drawn("persistence", table("persistence", {})));
  CHECK_FALSE(drawn("key-norms", table("key-norms", {})));
  CHECK_FALSE(drawn("ranking-loss", table("ranking-loss", {})));
  CHECK_FALSE(drawn("cumulative-loss", table("cumulative-loss", {})));
  const Figure nothing =
      *drawn("key-norms", table("key-norms", {{"a", n(0), n(0), kNone, kNone, kNone, kNone, kNone}}));
  CHECK_FALSE(gnuplot_script(nothing).empty());
}

}  // namespace kvsim::analysis::test_key_figures
