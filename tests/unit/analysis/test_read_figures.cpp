// Figures of what is stored whole and read in part, on tables by hand.
#include <catch2/catch.hpp>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/loop/answer_rows.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_read_figures {

using Catch::Matchers::Contains;

namespace {

/// Of `policy`, whose settings are `settings`; what begins with full stores everything.
Row row_of(const std::string& policy, const std::string& settings, const std::string& budget, double loss) {
  Row row;
  row.trace = "a";
  row.policy = policy;
  row.params = policy.starts_with("full") ? "full()+uniform()" : policy + "()+uniform()";
  if (!settings.empty()) row.params += policy.substr(policy.find('+')) + "(" + settings + ")";
  row.budget = budget;
  row.budget_tokens = budget == "10%" ? 10 : 40;
  row.own_budget = policy.starts_with("full") || policy == "fastgen";
  const double kept = policy == "fastgen" ? 30 : row.own_budget ? 100 : *row.budget_tokens;
  row.set("attention_loss", loss);
  row.set("kept_tokens", kept);
  row.set("kept_bytes", static_cast<std::uint64_t>(kept) * 1024);
  row.set("read_tokens", kept);
  row.set("read_bytes", kept * 1024);
  return row;
}

/// What the row's policy reads in place of everything.
Row& reads(Row& row, double tokens, double kib, double index_kib, double recall) {
  row.set("read_tokens", tokens);
  row.set("read_recall", recall);
  row.set("read_bytes", kib * 1024);
  row.set("index_read_bytes", index_kib * 1024);
  row.set("index_bytes", index_kib * 1024);
  return row;
}

/// An eviction at two budgets, the full cache, and two settings of a selection that stores everything.
std::vector<Row> small_study() {
  std::vector<Row> rows;
  for (const char* budget : {"10%", "40%"}) {
    rows.push_back(row_of("h2o", "", budget, budget[0] == '1' ? 0.3 : 0.1));
    rows.push_back(row_of("full", "", budget, 0));
    rows.push_back(row_of("full+quest", "read=5%,page=16", budget, 0.2));
    reads(rows.back(), 5, 9, 4, 0.6);
    rows.push_back(row_of("full+quest", "read=20%,page=16", budget, 0.05));
    reads(rows.back(), 20, 24, 4, 0.8);
  }
  return rows;
}

FigureTables tables_of(const std::vector<Row>& rows) {
  FigureTables tables;
  tables.results = records_of(rows);
  return tables;
}

/// Each row as a mean of its own.
void add_means(FigureTables& tables, const std::vector<Row>& rows, const std::string& metric) {
  Records& means = tables.tables["means"];
  for (const char* key : {"metric", "workload", "budget", "policy", "role", "traces", "mean", "low", "high"})
    means.columns.push_back({key, "", ""});
  for (const Row& row : rows) {
    const std::size_t read = row.params.find("read=");
    const std::string label =
        read == std::string::npos
            ? row.policy
            : row.policy + "(" + row.params.substr(read, row.params.find(',', read) - read) + ")";
    means.rows.push_back({metric, std::string("all"), row.budget, label,
                          std::string(row.own_budget ? "own_budget" : "policy"), std::uint64_t{1},
                          *row["attention_loss"], Value(), Value()});
  }
}

std::vector<Figure> built(const std::string& name, const FigureTables& tables,
                          const FigureChoice& choice = {}) {
  return figure_kind(name).build(tables, choice);
}

Figure only(const std::string& name, const FigureTables& tables, const FigureChoice& choice = {}) {
  std::vector<Figure> figures = built(name, tables, choice);
  REQUIRE(figures.size() == 1);
  return std::move(figures.front());
}

const Chart& chart_of(const Figure& figure, std::size_t panel = 0) {
  return std::get<Chart>(figure.panels.at(panel).content);
}

const Series& series_of(const Chart& chart, const std::string& label) {
  for (const Series& series : chart.series)
    if (series.label == label) return series;
  FAIL("no series " << label);
  throw 0;
}

bool has_series(const Chart& chart, const std::string& label) {
  return std::any_of(chart.series.begin(), chart.series.end(),
                     [&](const Series& series) { return series.label == label; });
}

std::vector<std::pair<double, double>> places(const Series& series) {
  std::vector<std::pair<double, double>> out;
  for (const Point& point : series.points) out.emplace_back(point.x, point.y);
  return out;
}

using Places = std::vector<std::pair<double, double>>;

}  // namespace

TEST_CASE("quality: what stores everything is a level line, what keeps a part by itself a point there") {
  std::vector<Row> rows = small_study();
  for (const char* budget : {"10%", "40%"}) rows.push_back(row_of("fastgen", "", budget, 0.15));
  FigureTables tables = tables_of(rows);
  add_means(tables, rows, "attention_loss");
  const Figure figure = only("quality", tables);
  const Chart& chart = chart_of(figure);
  const Series& quest = series_of(chart, "full+quest(read=5%)");
  CHECK(places(quest) == Places{{0.1, 0.2}, {0.4, 0.2}});
  CHECK(quest.weight == Weight::plain);
  CHECK(series_of(chart, "full").weight == Weight::bound);
  REQUIRE(series_of(chart, "fastgen").points.size() == 1);
  CHECK(series_of(chart, "fastgen").points[0].x == Approx(0.3));
  CHECK(series_of(chart, "fastgen").points[0].y == 0.15);
  CHECK(series_of(chart, "fastgen").group == "fastgen (own budget)");
  // Means over budgets of the distance to the best of all: of full+quest(read=20%) 0, of fastgen 0.1, of the
  // other setting 0.15 and, at both budgets alike, of h2o (0.25 + 0.05) / 2.
  CHECK(chart.series[0].label == "full+quest(read=20%)");
  CHECK(chart.series[1].label == "fastgen");
  CHECK_THAT(figure.reading, Contains("a level line is a policy that stores every token"));
  const Figure gaps = only("quality", tables, {.gap = true});
  CHECK(chart_of(gaps).series.size() == 1);  // of the policies that have a budget
}

TEST_CASE("accuracy: what stores everything is a level line, and the full cache stays the dashed one") {
  Records answers;
  for (const char* key : {"item", "workload", "policy", "params", "budget", "budget_tokens", "cut", "seed",
                          "turn", "mode", "right", "right_full", "kl", "same_top", "held_bytes", "skipped"})
    answers.columns.push_back({key, "", ""});
  for (const char* budget : {"10%", "40%"})
    for (const char* policy : {"h2o", "full", "full+quest"}) {
      const std::string name = policy, params = name == "h2o" ? "h2o()+uniform()" : "full()+uniform()";
      answers.rows.push_back({std::string("i"), std::string("keys"), name,
                              name == "full+quest" ? params + "+quest()" : params, std::string(budget),
                              budget[0] == '1' ? 10.0 : 40.0, std::string("question"), std::uint64_t{0},
                              std::uint64_t{0}, std::string("greedy"), name == "h2o" ? 0.0 : 1.0, 1.0, 0.1,
                              0.9, std::uint64_t{1024}, Value()});
    }
  FigureTables tables = tables_of({});
  tables.tables[kAnswersTable] = answers;
  Records& means = tables.tables["means"];
  for (const char* key :
       {"metric", "workload", "cut", "budget", "policy", "params", "role", "traces", "mean", "low", "high"})
    means.columns.push_back({key, "", ""});
  for (const std::vector<Value>& row : answers.rows) {
    const bool own = text(row[2]) != "h2o";
    means.rows.push_back({std::string("right"), std::string("all"), std::string("question"), row[4], row[2],
                          row[3], std::string(own ? "own_budget" : "policy"), std::uint64_t{1}, row[10],
                          Value(), Value()});
  }
  const Figure figure = only("accuracy", tables);
  const Chart& chart = chart_of(figure);
  CHECK(places(series_of(chart, "full+quest")) == Places{{0.1, 1}, {0.4, 1}});
  CHECK(series_of(chart, "full+quest").weight == Weight::plain);
  CHECK(series_of(chart, "full").weight == Weight::bound);
  CHECK(std::count_if(chart.series.begin(), chart.series.end(),
                      [](const Series& series) { return series.label == "full"; }) == 1);
  CHECK_THAT(figure.reading, Contains("A level line is a policy that keeps as much at every budget"));
}

TEST_CASE("pareto: an index is held beside the cache, and what has no budget has one spot") {
  const FigureTables tables = tables_of(small_study());
  const Figure figure = only("pareto", tables);
  const Chart& chart = chart_of(figure);
  CHECK(chart.x.label == "KiB held after the prompt, index included (mean over traces)");
  // h2o at 10 and 40 KiB, full at 100; quest holds 104 and is beaten.
  CHECK(places(series_of(chart, "front")) == Places{{10, 0.3}, {40, 0.1}, {100, 0}});
  CHECK(places(series_of(chart, "full+quest(read=20%)")) == Places{{104, 0.05}});
  CHECK(series_of(chart, "full+quest(read=20%)").weight == Weight::faint);
}

TEST_CASE("read-pareto: the same front by what a step reads") {
  const FigureTables tables = tables_of(small_study());
  const Figure figure = only("read-pareto", tables);
  const Chart& chart = chart_of(figure);
  // Reading 9 KiB loses 0.2, 24 KiB 0.05; h2o reads 10 for 0.3 and 40 for 0.1, and is beaten by both.
  CHECK(places(series_of(chart, "front")) == Places{{9, 0.2}, {24, 0.05}, {100, 0}});
  CHECK(series_of(chart, "h2o").weight == Weight::faint);
  CHECK(chart.x.label == "KiB read per step, index included (mean over traces)");
  CHECK(figure.command == "kvsim plot read-pareto DIR --metric attention_loss");
  CHECK_NOTHROW(figure.data.column("read_kib"));

  std::vector<Row> evictions = small_study();
  std::erase_if(evictions, [](const Row& row) { return row["index_bytes"].has_value(); });
  CHECK(built("read-pareto", tables_of(evictions)).empty());
  CHECK(chart_of(only("pareto", tables_of(evictions))).x.label ==
        "KiB held after the prompt (mean over traces)");
}

TEST_CASE("recall: a curve per method, its settings of read= in order of what they read") {
  std::vector<Row> rows = small_study();
  std::erase_if(rows, [](const Row& row) { return row.budget != "10%"; });
  std::swap(rows[2], rows[3]);
  rows.push_back(row_of("full+quest", "read=20%,page=4", "10%", 0.04));
  reads(rows.back(), 21, 40, 16, 0.9);
  rows.push_back(row_of("full+top_tokens", "read=20%", "10%", 0.03));
  reads(rows.back(), 20, 20, 0, 1);
  const Figure figure = only("recall", tables_of(rows));
  REQUIRE(figure.panels.size() == 2);
  const Chart &tokens = chart_of(figure, 0), &bytes = chart_of(figure, 1);
  REQUIRE(tokens.series.size() == 3);  // h2o and full select nothing
  CHECK(tokens.series[0].label == "full+top_tokens");
  CHECK(places(series_of(tokens, "full+quest(page=16)")) == Places{{5, 0.6}, {20, 0.8}});
  CHECK(places(series_of(bytes, "full+quest(page=16)")) == Places{{9, 0.6}, {24, 0.8}});
  CHECK(places(series_of(bytes, "full+quest(page=4)")) == Places{{40, 0.9}});
  CHECK(series_of(tokens, "full+quest(page=4)").policy == series_of(bytes, "full+quest(page=4)").policy);
  CHECK(tokens.y.percent);

  const Figure losses = only("recall", tables_of(rows), {.metric = "attention_loss"});
  CHECK(places(series_of(chart_of(losses), "full+quest(page=16)")) == Places{{5, 0.2}, {20, 0.05}});
  const Figure chosen = only("recall", tables_of(rows), {.policies = {"full+quest(read=20%,page=4)"}});
  CHECK(series_of(chart_of(chosen), "full+quest(page=4)").weight == Weight::plain);
  CHECK(series_of(chart_of(chosen), "full+top_tokens").weight == Weight::faint);
  std::erase_if(rows, [](const Row& row) { return row["read_recall"].has_value(); });
  CHECK(built("recall", tables_of(rows)).empty());
}

namespace {

/// `steps` rows of scope step; quest reads 30 KiB of which 10 are of the index, and half of the others again.
std::vector<Row> steps_of(std::uint64_t steps) {
  std::vector<Row> rows;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (const char* policy : {"h2o", "full", "full+quest"}) {
      Row& row = rows.emplace_back(row_of(policy, "", "10%", policy[0] == 'h' ? 0.3 : 0));
      if (row.policy == "full+quest") {
        row.params += "+quest()";
        row.set("attention_loss", 0.1);
        reads(row, 20, 30, 10, 0.8);
        if (step > 0) row.set("hit_rate", 0.5);
      }
      row.set("attention_loss_oracle", row.policy == "h2o" ? 0.2 : 0.0);
      row.scope = Scope::step;
      row.step = step;
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("steps: what stores everything has its curve, and the oracle is of the budget") {
  const Figure figure = only("steps", tables_of(steps_of(3)));
  const Chart& chart = chart_of(figure);
  CHECK(places(series_of(chart, "full+quest")) == Places{{0, 0.9}, {1, 0.9}, {2, 0.9}});
  CHECK(places(series_of(chart, "per-step oracle (own splits)")) == Places{{0, 0.8}, {1, 0.8}, {2, 0.8}});
  CHECK_FALSE(has_series(chart, "full"));  // it retains everything
  CHECK_NOTHROW(figure.data.column("retained_mass"));
}

TEST_CASE("steps: any number of single steps by its name, with the full cache beside it") {
  const FigureTables tables = tables_of(steps_of(3));
  const Figure bytes = only("steps", tables, {.metric = "read_bytes"});
  CHECK(places(series_of(chart_of(bytes), "full+quest")) == Places{{0, 30}, {1, 30}, {2, 30}});  // KiB
  CHECK_NOTHROW(bytes.data.column("read_kib"));
  CHECK(series_of(chart_of(bytes), "full").weight == Weight::bound);
  CHECK(series_of(chart_of(bytes), "full").points.at(0).y == 100);
  CHECK(bytes.command == "kvsim plot steps DIR --metric read_bytes --budget 10%");
  const Figure hits = only("steps", tables, {.metric = "hit_rate"});
  CHECK(places(series_of(chart_of(hits), "full+quest")) == Places{{1, 0.5}, {2, 0.5}});
  CHECK_FALSE(has_series(chart_of(hits), "h2o"));
  const Figure losses = only("steps", tables, {.metric = "attention_loss"});
  CHECK(series_of(chart_of(losses), "h2o").points.at(0).y == 0.3);
  CHECK_THROWS_WITH(built("steps", tables, {.metric = "hit_rat"}), Contains("hit_rate"));
  CHECK_THROWS_WITH(built("steps", tables, {.metric = "output_error"}), Contains("--metric"));
}

TEST_CASE("steps: total variation where numbers are stored otherwise") {
  std::vector<Row> rows = steps_of(2);
  for (Row& row : rows) row.set("total_variation", *row["attention_loss"]);
  for (std::uint64_t step = 0; step < 2; ++step) {
    Row& row = rows.emplace_back(row_of("full+kivi", "bits=2", "10%", 0));
    row.set("attention_loss", {});
    row.set("total_variation", 0.07);
    row.scope = Scope::step;
    row.step = step;
  }
  const Figure figure = only("steps", tables_of(rows));
  CHECK(places(series_of(chart_of(figure), "full+kivi")) == Places{{0, 0.07}, {1, 0.07}});
  CHECK(series_of(chart_of(figure), "h2o").points.at(0).y == 0.3);
  CHECK_THAT(figure.title, Contains("Total variation over measured steps"));
}

TEST_CASE("traffic: index, hits and misses on each other; the first step finds nothing") {
  const Figure figure = only("traffic", tables_of(steps_of(2)));
  REQUIRE(figure.panels.size() == 1);  // nothing else reads a part
  CHECK(figure.panels[0].title == "full+quest");
  const auto& columns = std::get<Timeline>(figure.panels[0].content);
  REQUIRE(columns.bars.size() == 5);
  const auto is = [](const Timeline::Bar& bar, double step, double bottom, double top, int colour) {
    return bar.begin == Approx(step - 0.4) && bar.end == Approx(step + 0.4) &&
           bar.y - bar.height / 2 == Approx(bottom).margin(1e-9) && bar.y + bar.height / 2 == Approx(top) &&
           bar.colour == colour;
  };
  CHECK((is(columns.bars[0], 0, 0, 10, 0) && is(columns.bars[1], 0, 10, 30, 2)));
  CHECK((is(columns.bars[2], 1, 0, 10, 0) && is(columns.bars[3], 1, 10, 20, 1) &&
         is(columns.bars[4], 1, 20, 30, 2)));
  CHECK(columns.y.high == Approx(30));
  CHECK(number(figure.data.rows[1][figure.data.column("hit_kib")]) == Approx(10));

  // 201 steps are too many columns: 67 of the means of three.
  const Figure many = only("traffic", tables_of(steps_of(201)));
  const auto& groups = std::get<Timeline>(many.panels[0].content);
  REQUIRE(groups.bars.size() == 3 * 67);
  CHECK(groups.bars[0].end == Approx(2.4));
  CHECK(groups.bars[1].height == Approx(20.0 / 3));  // hits: 0, 10 and 10 KiB
  CHECK_THAT(many.remark, Contains("mean of 3 steps"));
  CHECK(many.data.rows.size() == 201);

  std::vector<Row> evictions = steps_of(2);
  std::erase_if(evictions, [](const Row& row) { return row.policy == "full+quest"; });
  CHECK(built("traffic", tables_of(evictions)).empty());
}

TEST_CASE("ranks name those that have no budget to be compared at") {
  FigureTables tables = tables_of(small_study());
  Records& ranks = tables.tables["ranks"];
  for (const char* key :
       {"metric", "workload", "budget", "policy", "rank", "rank_low", "rank_high", "traces"})
    ranks.columns.push_back({key, "", ""});
  ranks.rows.push_back({std::string("attention_loss"), std::string("all"), std::string("10%"),
                        std::string("h2o"), 1.0, 1.0, 1.0, std::uint64_t{2}});
  CHECK(only("ranks", tables).remark ==
        "Not compared, as they are of no budget: full+quest(read=5%), full+quest(read=20%).");
  std::vector<Row> without = small_study();
  std::erase_if(without, [](const Row& row) { return row.policy == "full+quest"; });
  tables.results = records_of(without);
  CHECK(only("ranks", tables).remark.empty());
}

}  // namespace kvsim::analysis::test_read_figures
