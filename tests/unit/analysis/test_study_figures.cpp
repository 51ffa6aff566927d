// Figures of studies on tables by hand: what is chosen, what is a bound, what the numbers are.
#include <catch2/catch.hpp>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_study_figures {

using Catch::Matchers::Contains;

namespace {

Row row_of(const std::string& trace, const std::string& policy, const std::string& budget, double tokens,
           std::optional<double> loss) {
  Row row;
  row.trace = trace;
  row.policy = policy;
  row.params = policy + "()+uniform()";
  row.budget = budget;
  row.budget_tokens = tokens;
  row.set("attention_loss", value_of(loss));
  row.oracle = policy == "optimal";
  row.own_budget = policy == "full";
  row.set("kept_tokens", tokens);
  row.set("kept_bytes", static_cast<std::uint64_t>(tokens) * 1024);
  return row;
}

/// Two traces, budgets of 10 and 40 of 100 tokens.
std::vector<Row> small_study() {
  std::vector<Row> rows;
  for (const char* trace : {"a", "b"}) {
    const double more = trace[0] == 'a' ? 0 : 0.02;
    rows.push_back(row_of(trace, "h2o", "10%", 10, 0.30 + more));
    rows.push_back(row_of(trace, "h2o", "40%", 40, 0.10 + more));
    rows.push_back(row_of(trace, "tova", "10%", 10, 0.20 + more));
    rows.push_back(row_of(trace, "tova", "40%", 40, 0.15 + more));
    rows.push_back(row_of(trace, "optimal", "10%", 10, 0.05));
    rows.push_back(row_of(trace, "optimal", "40%", 40, 0.01));
    rows.push_back(row_of(trace, "full", "10%", 10, 0.0));
    rows.push_back(row_of(trace, "full", "40%", 40, 0.0));
  }
  return rows;
}

/// Columns of means that figures read.
Records means_of(const std::vector<std::vector<Value>>& rows) {
  Records table;
  for (const char* key : {"metric", "workload", "budget", "policy", "role", "traces", "mean", "low", "high"})
    table.columns.push_back({key, "", ""});
  table.rows = rows;
  return table;
}

std::vector<Value> mean_row(const char* budget, const char* policy, const char* role, double mean) {
  return {std::string("attention_loss"),
          std::string("all"),
          std::string(budget),
          std::string(policy),
          std::string(role),
          std::uint64_t{2},
          mean,
          mean - 0.01,
          mean + 0.01};
}

FigureTables small_tables() {
  FigureTables tables;
  tables.results = records_of(small_study());
  tables.tables["means"] =
      means_of({mean_row("10%", "h2o", "policy", 0.31), mean_row("40%", "h2o", "policy", 0.11),
                mean_row("10%", "tova", "policy", 0.21), mean_row("40%", "tova", "policy", 0.16),
                mean_row("10%", "optimal", "oracle", 0.05), mean_row("40%", "optimal", "oracle", 0.01),
                mean_row("10%", "full", "own_budget", 0), mean_row("40%", "full", "own_budget", 0)});
  return tables;
}

Figure only(const std::string& name, const FigureTables& tables, const FigureChoice& choice = {}) {
  std::vector<Figure> figures = figure_kind(name).build(tables, choice);
  REQUIRE(figures.size() == 1);
  return std::move(figures.front());
}

const Chart& chart_of(const Figure& figure) {
  return std::get<Chart>(figure.panels.at(0).content);
}

const Series& series_of(const Chart& chart, const std::string& label) {
  for (const Series& series : chart.series)
    if (series.label == label) return series;
  FAIL("no series " << label);
  throw 0;
}

}  // namespace

TEST_CASE("figures are found by name and draw nothing without their tables") {
  CHECK_THROWS_WITH(figure_kind("qality"), Contains("quality"));
  FigureTables empty;
  empty.results = records_of({});
  for (const FigureKind& kind : figure_kinds()) {
    CAPTURE(kind.name);
    CHECK(kind.build(empty, {}).empty());
    CHECK(&figure_kind(kind.name) == &kind);
  }
}

TEST_CASE("quality: means with bands, oracle and full cache as bounds") {
  const Figure figure = only("quality", small_tables());
  const Chart& chart = chart_of(figure);
  const Series& h2o = series_of(chart, "h2o");
  REQUIRE(h2o.points.size() == 2);
  CHECK(h2o.points[0].x == Approx(0.1));
  CHECK(h2o.points[0].y == 0.31);
  CHECK(h2o.points[0].low == 0.31 - 0.01);
  CHECK(h2o.weight == Weight::plain);
  CHECK(series_of(chart, "optimal").weight == Weight::bound);
  CHECK(series_of(chart, "optimal").group == "oracle optimal, own split");
  const Series& full = series_of(chart, "full");  // a line over all budgets
  CHECK(full.weight == Weight::bound);
  CHECK((full.points.front().x == Approx(0.1) && full.points.back().x == Approx(0.4)));
  CHECK(chart.x.percent);
  CHECK(figure.remark.empty());
  CHECK(figure.command == "kvsim plot quality DIR --metric attention_loss");
  CHECK_THAT(figure.title, Contains("mean over 2 traces"));
  // On average over the budgets tova is 0.025 from the best, h2o 0.05: tova is named first.
  CHECK(chart.series[0].label == "tova");
}

TEST_CASE(
    "quality: what no set of the size retains at any split bounds R, not an oracle, which aims at attention "
    "to "
    "come") {
  std::vector<Row> rows = small_study();
  for (Row& row : rows) {
    row.set("r", 0.5);
    row.set("r_bound", row.policy == "tova" ? 0.9 : row.policy == "h2o" ? 0.8 : 1.0);
    if (row.trace == "b") row.set("r_bound", *row["r_bound"] - 0.1);
  }
  FigureTables tables = small_tables();
  tables.results = records_of(rows);
  for (std::vector<Value>& mean : tables.tables["means"].rows) mean[0] = std::string("r");
  const Figure figure = only("quality", tables, {.metric = "r"});
  const Series& best = series_of(chart_of(figure), "best set, any split");
  CHECK(best.weight == Weight::bound);
  REQUIRE(best.points.size() == 2);
  CHECK(best.points[0].y == Approx(0.85));  // tova's, the mean of 0.9 and 0.8
  for (const Series& series : chart_of(figure).series) CHECK(series.label != "optimal");
  CHECK_THAT(figure.reading, Contains("the best set of the size at any split of the budget"));
}

TEST_CASE("quality: attention loss is bounded over all splits where the results have that bound") {
  std::vector<Row> rows = small_study();
  for (Row& row : rows)
    if (!row.own_budget) row.set("attention_loss_bound", row.policy == "h2o" ? 0.03 : 0.04);
  FigureTables tables = small_tables();
  tables.results = records_of(rows);
  const Figure figure = only("quality", tables);
  CHECK(series_of(chart_of(figure), "bound, any split").points[0].y == Approx(0.03));  // h2o may hold more
  for (const Series& series : chart_of(figure).series) CHECK(series.label != "optimal");
  CHECK_THAT(figure.reading, Contains("at any split of the budget, which no policy can beat"));
  CHECK_THAT(only("quality", small_tables()).reading,
             Contains("an oracle, which knows the future, at its own split"));
}

TEST_CASE("quality: gaps to the best policy of each budget are paired differences where there are any") {
  FigureTables tables = small_tables();
  const Figure unpaired = only("quality", tables, {.gap = true});
  CHECK(unpaired.name == "quality-attention-loss-gap");
  CHECK(unpaired.command == "kvsim plot quality DIR --metric attention_loss --gap");
  CHECK(series_of(chart_of(unpaired), "h2o").points[0].y == Approx(0.10));
  CHECK_FALSE(series_of(chart_of(unpaired), "h2o").points[0].low);
  Records pairs;
  for (const char* key :
       {"metric", "workload", "budget", "policy", "other", "traces", "difference", "low", "high"})
    pairs.columns.push_back({key, "", ""});
  const auto pair = [&](const char* budget, const char* policy, const char* other, double value) {
    pairs.rows.push_back({std::string("attention_loss"), std::string("all"), std::string(budget),
                          std::string(policy), std::string(other), std::uint64_t{2}, value, value - 0.02,
                          value + 0.01});
  };
  pair("10%", "tova", "h2o", -0.10);
  pair("40%", "tova", "h2o", 0.05);
  tables.tables["differences"] = pairs;
  const Figure figure = only("quality", tables, {.gap = true});
  const Series &h2o = series_of(chart_of(figure), "h2o"), &tova = series_of(chart_of(figure), "tova");
  CHECK((h2o.points[0].y == 0.10 && h2o.points[1].y == 0));
  CHECK((h2o.points[0].low == Approx(0.09) && h2o.points[0].high == Approx(0.12)));  // turned round
  CHECK((tova.points[0].y == 0 && tova.points[1].y == 0.05 && tova.points[1].low == Approx(0.03)));
  CHECK(chart_of(figure).series.size() == 2);
  CHECK(number(figure.data.rows[0][figure.data.column("gap")]) == 0);  // tova's at 10 %
  CHECK(number(figure.data.rows[1][figure.data.column("gap_high")]) == Approx(0.06));
}

TEST_CASE(
    "quality: where the worst squeeze the better half, gaps have a panel that says whom it leaves out") {
  const auto study = [](double worst) {
    std::vector<Row> rows;
    std::vector<std::vector<Value>> means;
    for (int i = 0; i < 5; ++i) {
      const std::string name = i == 4 ? "random" : "p" + std::to_string(i);
      for (const char* budget : {"10%", "40%"}) {
        const double loss = i == 4 ? 0.1 + worst : 0.1 + 0.01 * i;
        rows.push_back(row_of("a", name, budget, budget[0] == '1' ? 10 : 40, loss));
        means.push_back(mean_row(budget, name.c_str(), "policy", loss));
      }
    }
    FigureTables tables;
    tables.results = records_of(rows);
    tables.tables["means"] = means_of(means);
    return tables;
  };
  // The better half are p0, p1 and p2, at most 0.02 from the best.
  CHECK(only("quality", study(0.059)).panels.size() == 1);
  const Figure figure = only("quality", study(0.061));
  REQUIRE(figure.panels.size() == 2);
  const Chart& gaps = std::get<Chart>(figure.panels[1].content);
  CHECK(*gaps.y.high == Approx(0.02));
  CHECK(series_of(gaps, "random").points[0].y == Approx(0.061));
  CHECK(series_of(gaps, "p1").policy == "p1");
  CHECK_THAT(figure.remark,
             Contains("more than three times") && Contains("beyond it lie, at some budget, random, p3."));
  CHECK(only("quality", study(0.061), {.gap = true}).panels.size() == 1);
}

TEST_CASE("quality: beyond eight policies the five nearest to the best and known ones are named") {
  std::vector<Row> rows;
  std::vector<std::vector<Value>> means;
  for (int i = 0; i < 9; ++i) {
    const std::string name = i == 8 ? "random" : "p" + std::to_string(i);
    rows.push_back(row_of("a", name, "10%", 10, 0.1 + 0.01 * i));
    means.push_back(mean_row("10%", name.c_str(), "policy", 0.1 + 0.01 * i));
  }
  FigureTables tables;
  tables.results = records_of(rows);
  tables.tables["means"] = means_of(means);
  const Figure figure = only("quality", tables);
  std::vector<std::string> named, others;
  for (const Series& series : chart_of(figure).series)
    (series.weight == Weight::plain ? named : others).push_back(series.label);
  CHECK(named == std::vector<std::string>{"p0", "p1", "p2", "p3", "p4", "random"});
  CHECK(others == std::vector<std::string>{"p5", "p6", "p7"});
  CHECK_THAT(figure.remark,
             Contains("Grey: the 3 other policies.") && Contains("One budget, so points and no lines"));

  const Figure chosen = only("quality", tables, {.policies = {"p6"}});
  CHECK(chart_of(chosen).series[0].label == "p6");
  CHECK(chart_of(chosen).series[1].weight == Weight::faint);
  CHECK_THROWS_WITH(figure_kind("quality").build(tables, {.policies = {"p66"}}), Contains("p6"));
}

namespace {

/// The small study at two cuts; the second turns the order round.
FigureTables two_cuts() {
  FigureTables tables = small_tables();
  std::vector<Row> rows = small_study(), more = rows;
  for (Row& row : rows) row.cut = "prompt";
  for (Row& row : more) {
    row.cut = "question";
    row.set("attention_loss", 0.5 - *row["attention_loss"]);
  }
  rows.insert(rows.end(), more.begin(), more.end());
  tables.results = records_of(rows);
  Records& means = tables.tables["means"];
  means.columns.push_back({"cut", "", ""});
  const std::vector<std::vector<Value>> at_first = means.rows;
  for (std::vector<Value>& row : means.rows) row.emplace_back(std::string("prompt"));
  for (std::vector<Value> row : at_first) {
    row[6] = 0.5 - *number(row[6]);
    row[7] = row[8] = Value();
    row.emplace_back(std::string("question"));
    means.rows.push_back(std::move(row));
  }
  return tables;
}

}  // namespace

TEST_CASE("a figure shows one cut and names it; the cuts figure shows all side by side") {
  const FigureTables tables = two_cuts();
  const Figure first = figures_of(figure_kind("quality"), tables, {}).at(0);
  CHECK(first.name == "quality-attention-loss");
  CHECK_THAT(first.title, Contains("; cut prompt: question known to the policy"));
  CHECK(series_of(chart_of(first), "h2o").points[0].y == 0.31);
  const Figure other = figures_of(figure_kind("quality"), tables, {.cut = "question"}).at(0);
  CHECK(other.name == "quality-attention-loss-cut-question");
  CHECK_THAT(other.title, Contains("; cut question: question not known to the policy"));
  CHECK_THAT(other.command, Contains(" --cut question"));
  CHECK(series_of(chart_of(other), "h2o").points[0].y == 0.5 - 0.31);
  CHECK_THROWS_WITH(figures_of(figure_kind("quality"), tables, {.cut = "7"}), Contains("--cut"));

  const Figure both = figures_of(figure_kind("cuts"), tables, {}).at(0);
  REQUIRE(both.panels.size() == 2);
  CHECK((both.panels[0].title == "question known" && both.panels[1].title == "question not known"));
  const auto &left = std::get<Chart>(both.panels[0].content),
             &right = std::get<Chart>(both.panels[1].content);
  CHECK(series_of(left, "tova").points[0].y == 0.21);
  CHECK(series_of(right, "tova").points[0].y == 0.5 - 0.21);
  CHECK(series_of(left, "tova").policy == series_of(right, "tova").policy);
  CHECK((left.y.low == right.y.low && left.y.high == right.y.high));
  CHECK(figures_of(figure_kind("cuts"), small_tables(), {}).empty());
}

TEST_CASE("steps: from the first that every trace has to the last") {
  std::vector<Row> rows;
  for (const std::string trace : {"a", "b"}) {
    for (std::uint64_t step = trace == "a" ? 0 : 1; step < (trace == "a" ? 3U : 4U); ++step) {
      Row& row = rows.emplace_back(row_of(trace, "h2o", "10%", 10, 0.1 * static_cast<double>(step)));
      row.scope = Scope::step;
      row.step = step;
    }
  }
  FigureTables tables;
  tables.results = records_of(rows);
  const Figure figure = only("steps", tables);
  const Chart& chart = chart_of(figure);
  REQUIRE(chart.series.at(0).points.size() == 2);
  CHECK((chart.series[0].points[0].x == 1 && chart.series[0].points[1].x == 2));
  CHECK_THAT(figure.remark, Contains("only some traces have"));
  CHECK(chart.x.label == "measured step");
  std::erase_if(rows, [](const Row& row) { return row.trace == "b"; });
  tables.results = records_of(rows);
  CHECK(chart_of(only("steps", tables)).series.at(0).points.at(0).x == 0);
}

TEST_CASE("matrix: policies by mean, a missing cell stays missing, a policy without any has no row") {
  std::vector<Row> rows = small_study();
  rows.push_back(row_of("a", "snapkv", "10%", 10, 0.25));
  rows.push_back(row_of("b", "snapkv", "10%", 10, {}));
  rows.push_back(row_of("a", "d2o", "10%", 10, {}));
  FigureTables tables;
  tables.results = records_of(rows);
  const Figure figure = only("matrix", tables, {.budget = "10%"});
  const auto& map = std::get<HeatMap>(figure.panels[0].content);
  CHECK(map.x.categories == std::vector<std::string>{"a", "b"});
  CHECK(map.y.categories == std::vector<std::string>{"full", "optimal", "tova", "snapkv", "h2o"});
  CHECK(map.rows[3] == std::vector<std::optional<double>>{0.25, std::nullopt});
  CHECK(figure.remark == "1 policy has no value at this budget and no row.");
  CHECK_THROWS_WITH(figure_kind("matrix").build(tables, {.budget = "11%"}), Contains("10%"));
}

TEST_CASE("traces without evidence have no say where evidence leads") {
  std::vector<Row> rows = small_study();
  for (Row& row : rows)
    if (row.trace == "a") row.set("evidence_loss", row.policy == "h2o" ? 0.1 : 0.2);
  FigureTables tables;
  tables.results = records_of(rows);
  const Figure figure = only("pareto", tables);
  CHECK_THAT(figure.title, Contains("Evidence loss"));
  const Series& front = series_of(chart_of(figure), "front");
  REQUIRE(front.points.size() == 1);
  CHECK(front.points[0].y == 0.1);
}

TEST_CASE("pareto: the front is what nothing beats in both; oracles do not count") {
  FigureTables tables;
  tables.results = records_of(small_study());
  const Chart chart = chart_of(only("pareto", tables));
  // 10 KiB: full (0) beats all that is as small; it keeps 10 here, as the table by hand says.
  const Series& front = series_of(chart, "front");
  REQUIRE(front.points.size() == 1);
  CHECK(front.points[0].x == Approx(10));
  CHECK(front.points[0].y == 0);

  std::vector<Row> rows = small_study();
  std::erase_if(rows, [](const Row& row) { return row.own_budget; });
  tables.results = records_of(rows);
  const Chart without = chart_of(only("pareto", tables));
  const Series& both = series_of(without, "front");  // tova with 10, h2o with 40
  REQUIRE(both.points.size() == 2);
  CHECK((both.points[0].y == Approx(0.21) && both.points[1].y == Approx(0.11)));
}

TEST_CASE("next byte: gains along the front of each method, its settings taken together") {
  std::vector<Row> rows;
  const auto add = [&](const std::string& params, double kib, double loss) {
    Row& row = rows.emplace_back(row_of("a", "h2o+kivi", "10%", kib, loss));
    row.params = params;
  };
  add("h2o()+uniform()+kivi(bits=2)", 10, 0.4);
  add("h2o()+uniform()+kivi(bits=3)", 15, 0.5);  // more bytes and worse: not on the front
  add("h2o()+uniform()+kivi(bits=4)", 20, 0.2);
  add("h2o()+uniform()+kivi(bits=8)", 40, 0.1);
  rows.push_back(row_of("a", "tova", "10%", 10, 0.3));  // one spot: nothing to gain from
  FigureTables tables;
  tables.results = records_of(rows);
  const Chart chart = chart_of(only("next-byte", tables));
  REQUIRE(chart.series.size() == 1);
  const Series& gains = chart.series[0];
  CHECK(gains.label == "h2o+kivi");
  REQUIRE(gains.points.size() == 4);
  CHECK((gains.points[0].x == 10 && gains.points[1].x == 20 && gains.points[2].x == 20 &&
         gains.points[3].x == 40));
  CHECK((gains.points[0].y == Approx(0.02) && gains.points[1].y == Approx(0.02)));    // (0.4 - 0.2) / 10
  CHECK((gains.points[2].y == Approx(0.005) && gains.points[3].y == Approx(0.005)));  // (0.2 - 0.1) / 20
  CHECK(chart.y.label == "less attention loss per further KiB");
}

TEST_CASE("pareto: total variation where attention loss is not defined for all") {
  std::vector<Row> rows = small_study();
  for (Row& row : rows) row.set("total_variation", row.policy == "h2o" ? 0.3 : 0.1);
  rows.push_back(row_of("a", "tova+fp8", "10%", 5, {}));
  rows.push_back(row_of("b", "tova+fp8", "10%", 5, {}));
  for (std::size_t i = rows.size() - 2; i < rows.size(); ++i) rows[i].set("total_variation", 0.2);
  FigureTables tables;
  tables.results = records_of(rows);
  const Figure figure = only("pareto", tables);
  CHECK_THAT(figure.title, Contains("Total variation"));
  const Series& front = series_of(chart_of(figure), "front");
  REQUIRE(front.points.size() == 2);
  CHECK((front.points[0].x == Approx(5) && front.points[0].y == Approx(0.2)));
}

TEST_CASE("layers: policies that split alike share a curve") {
  std::vector<Row> rows;
  for (const std::string policy : {"h2o", "tova", "pyramidkv"}) {
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      Row row = row_of("a", policy, "10%", policy == "pyramidkv" ? 15.0 - 10 * layer : 10, 0.1);
      row.scope = Scope::layer;
      row.layer = layer;
      rows.push_back(row);
    }
  }
  FigureTables tables;
  tables.results = records_of(rows);
  const Chart chart = chart_of(only("layers", tables));
  REQUIRE(chart.series.size() == 2);
  CHECK(chart.series[0].group == "h2o, tova");
  CHECK(chart.series[1].points[1].y == 5);
}

TEST_CASE("timeline: neighbours that come and go together are one bar") {
  FigureTables tables;
  tables.decisions = kvsim::sim::Decisions{
      .prompt = 3, .decode = 4, .n_layers = 1, .n_kv_heads = 1, .cells = {{"h2o", "h2o()", "10%", "", {}}}};
  tables.decisions->cells[0].resident_intervals = {{{0, 0, 4}, {1, 0, 4}, {2, 0, 2}, {3, 1, 4}}};
  const Figure figure = only("timeline", tables);
  const auto& timeline = std::get<Timeline>(figure.panels[0].content);
  REQUIRE(timeline.bars.size() == 3);
  CHECK((timeline.bars[0].y == 0.5 && timeline.bars[0].height == 2));
  CHECK((timeline.bars[1].end == 2 && timeline.bars[1].colour == 0));
  CHECK(timeline.bars[2].colour == 1);  // position 3 was generated
  CHECK_THROWS_WITH(figure_kind("timeline").build(tables, {.layer = 1}), Contains("layers 0 to 0"));
}

}  // namespace kvsim::analysis::test_study_figures
