// Figures of layers, from tables written out here.
#include <catch2/catch.hpp>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/kinds/kind.hpp"

namespace kvsim::analysis::test_layer_figures {

using Catch::Contains;

namespace {

Records table(const char* kind, std::vector<std::vector<Value>> rows) {
  Records records{kind_named(kind).columns, std::move(rows)};
  for (const auto& row : records.rows) CHECK(row.size() == records.columns.size());
  return records;
}

const Chart& chart(const Figure& figure, std::size_t panel) {
  return std::get<Chart>(figure.panels.at(panel).content);
}

/// Two layers of two spans each.
void add_importance(Records& to, const std::string& trace, double last, double a, double b) {
  for (std::uint64_t layer = 0; layer < 2; ++layer) {
    const double first = layer == 0 ? a : b;
    to.rows.push_back({trace, layer, std::uint64_t{0}, (last - 1) / 2, first});
    to.rows.push_back({trace, layer, (last + 1) / 2, last, 1 - first});
  }
}

/// `layers` layers with R(n) at n = 1, 8 and `most`; layer k retains more the larger k.
void add_retention(Records& to, const std::string& trace, std::uint64_t layers, std::uint64_t most) {
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    const double r = 0.1 + 0.01 * static_cast<double>(layer);
    const auto share = [&](double n) { return n / static_cast<double>(most); };
    to.rows.push_back({trace, layer, std::uint64_t{1}, share(1), r, {}, {}});
    to.rows.push_back({trace, layer, std::uint64_t{8}, share(8), 2 * r, 2 * r / 3, -0.25});
    to.rows.push_back({trace, layer, most, 1.0, 1.0, 0.1, -0.125});
  }
}

/// The figure of that name of a table, if there is one.
std::optional<Figure> drawn(const char* name, FigureTables tables) {
  std::vector<Figure> figures = figure_kind(name).build(tables, {});
  return figures.empty() ? std::nullopt : std::optional(figures.front());
}

std::optional<Figure> importance_map(const Records& table) {
  return drawn("importance", {.tables = {{"importance", table}}});
}
std::optional<Figure> retention_curves(const Records& table) {
  return drawn("retention", {.tables = {{"retention", table}}});
}
std::optional<Figure> retention_by_layer(const Records& sizes, const Records& retention) {
  return drawn("retention-layers", {.tables = {{"retention-size", sizes}, {"retention", retention}}});
}
std::optional<Figure> allocation_by_layer(const Records& table) {
  return drawn("allocation", {.tables = {{"allocation", table}}});
}

}  // namespace

TEST_CASE("importance map: mean over traces of like length, else the first") {
  Records rows = table("importance", {});
  CHECK_FALSE(importance_map(rows));
  add_importance(rows, "a", 99, 0.5, 0.25);
  add_importance(rows, "b", 103, 0.75, 0.25);
  const Figure mean = *importance_map(rows);
  CHECK_THAT(mean.title, Contains("mean over 2 traces"));
  CHECK(mean.remark.empty());
  const auto& map = std::get<HeatMap>(mean.panels.at(0).content);
  REQUIRE(map.rows.size() == 2);
  CHECK(*map.rows[0][0] == 0.625);
  CHECK(*map.rows[1][1] == 0.75);
  // Centres of spans 0-49 and 50-99.
  CHECK(*map.x.low == 24.5);
  CHECK(*map.x.high == 74.5);
  CHECK(mean.data.rows.size() == 4);
  add_importance(rows, "c", 199, 0, 0);
  const Figure first = *importance_map(rows);
  CHECK_THAT(first.title, Contains("one trace"));
  CHECK_THAT(first.remark, Contains("first of 3 traces"));
  CHECK(*std::get<HeatMap>(first.panels[0].content).rows[0][0] == 0.5);
}

TEST_CASE("importance map: what is undefined in one trace is not averaged over the others") {
  Records rows = table("importance", {});
  add_importance(rows, "a", 99, 0.5, 0.25);
  add_importance(rows, "b", 99, 0.5, 0.25);
  rows.rows[6].back() = {};  // trace b, layer 1, first span
  const auto map = std::get<HeatMap>(importance_map(rows)->panels.at(0).content);
  CHECK_FALSE(map.rows[1][0]);
  CHECK(*map.rows[1][1] == 0.75);
}

TEST_CASE("retention curves: few layers are named, of many the landmarks") {
  Records few = table("retention", {});
  CHECK_FALSE(retention_curves(few));
  add_retention(few, "a", 3, 64);
  add_retention(few, "b", 3, 80);
  const Figure named = *retention_curves(few);
  REQUIRE(named.panels.size() == 3);
  REQUIRE(chart(named, 0).series.size() == 3);
  CHECK(chart(named, 0).series[2].label == "layer 2");
  // n = 64 and n = 80 are those of one trace only.
  REQUIRE(chart(named, 0).series[2].points.size() == 2);
  CHECK(chart(named, 0).series[2].points[1].x == 8);
  CHECK(chart(named, 0).series[2].points[1].y == Approx(0.24));
  CHECK(chart(named, 1).series[0].points.size() == 1);
  CHECK(chart(named, 2).series[0].points.at(0).y == -0.25);
  CHECK_THAT(named.remark, Contains("shortest prompt"));

  Records many = table("retention", {});
  add_retention(many, "a", 32, 64);
  const Figure landmarks = *retention_curves(many);
  REQUIRE(chart(landmarks, 0).series.size() == 32);
  std::vector<std::string> plain;
  for (const Series& series : chart(landmarks, 0).series) {
    if (series.weight == Weight::plain)
      plain.push_back(series.label);
    else
      CHECK(series.label == "other layers");
  }
  // First and last are also least and most; the one in the middle of 32 from the most is the 17th.
  CHECK(plain == std::vector<std::string>{"layer 0", "layer 15", "layer 31"});
}

TEST_CASE("retention by layer: n at fixed R, R at fixed n, with the range over traces") {
  Records sizes = table("retention-size", {}), retention = table("retention", {});
  CHECK_FALSE(retention_by_layer(sizes, retention));
  for (std::uint64_t layer = 0; layer < 2; ++layer) {
    sizes.rows.push_back({"a", layer, "retention", 0.5, std::uint64_t{10}, 0.1, 0.5});
    sizes.rows.push_back({"a", layer, "retention", 0.9, std::uint64_t{30}, 0.3, 0.9});
    sizes.rows.push_back({"a", layer, "slope", 0.0, {}, {}, {}});
    sizes.rows.push_back({"b", layer, "retention", 0.5, std::uint64_t{20}, 0.2, 0.5});
  }
  const Figure one = *retention_by_layer(sizes, {});
  REQUIRE(one.panels.size() == 1);
  REQUIRE(chart(one, 0).series.size() == 2);
  CHECK(chart(one, 0).series[0].label == "R = 50 %");
  CHECK(chart(one, 0).series[0].points[1].y == Approx(0.15));
  CHECK(*chart(one, 0).series[0].points[1].low == 0.1);
  CHECK(*chart(one, 0).series[0].points[1].high == 0.2);
  CHECK_FALSE(chart(one, 0).series[1].points[1].low);
  // 8 of 80 is 10 %, 8 of 155 nearly 5 %; nothing is near 20 % or 50 %.
  add_retention(retention, "a", 2, 80);
  add_retention(retention, "b", 2, 155);
  const Figure both = *retention_by_layer(sizes, retention);
  REQUIRE(both.panels.size() == 2);
  REQUIRE(chart(both, 1).series.size() == 2);
  CHECK(chart(both, 1).series[0].label == "n = 5 %");
  CHECK(chart(both, 1).series[1].label == "n = 10 %");
  CHECK(chart(both, 1).series[1].points[1].y == Approx(0.22));
  CHECK(both.panels[0].title != both.panels[1].title);
  CHECK(retention_by_layer({}, retention)->panels.size() == 1);
}

TEST_CASE("allocation by layer: a panel per policy that does not split evenly") {
  Records rows = table("allocation", {});
  CHECK_FALSE(allocation_by_layer(rows));
  const auto add = [&](const char* trace, const char* policy, const std::vector<Value>& shares) {
    for (std::uint64_t layer = 0; layer < shares.size(); ++layer)
      rows.rows.push_back({trace, policy, std::string(policy) + "()", "10%", layer, {}, shares[layer]});
  };
  add("a", "flat", {0.5, 0.5});
  add("a", "steep", {0.75, 0.25});
  add("a", "late", {{}, {}});
  add("b", "flat", {0.5, 0.5});
  add("b", "steep", {0.625, 0.375});
  add("b", "late", {0.25, 0.75});
  const Figure figure = *allocation_by_layer(rows);
  REQUIRE(figure.panels.size() == 2);
  CHECK(figure.panels[0].title == "steep (W = 1.00)");
  CHECK(figure.panels[1].title == "late");
  CHECK_THAT(figure.remark, Contains("Splits evenly: flat."));
  const Chart& steep = chart(figure, 0);
  REQUIRE(steep.series.size() == 4);
  CHECK(steep.series[0].weight == Weight::bound);
  CHECK(steep.series[0].points[0].y == 0.5);
  CHECK(steep.series[1].weight == Weight::faint);
  CHECK(steep.series[3].points[0].y == 0.6875);
  CHECK(chart(figure, 1).series.size() == 2);
  CHECK(*steep.y.high == *chart(figure, 1).y.high);
  CHECK(figure.data.rows.size() == 6);
  rows.rows.resize(2);
  CHECK_FALSE(allocation_by_layer(rows));
}

}  // namespace kvsim::analysis::test_layer_figures
