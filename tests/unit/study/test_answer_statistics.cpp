// Answers of the closed loop in a study: what ranks policies, what does not, and what the report says of it.
#include <catch2/catch.hpp>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/loop/answer_rows.hpp"
#include "analysis/report/evidence.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "analysis/statistics/statistics.hpp"

namespace kvsim::analysis::test_answer_statistics {

using Catch::Contains;

namespace {

struct AnswerCell {
  std::string item, workload, policy, budget = "10%", cut = "prompt";
  std::uint64_t right = 1, right_full = 1;
  double kl = 0;
  std::uint64_t agreement = 2, tokens = 2;
  std::uint64_t held_kib = 1;
};

/// Rows of both modes, as the closed loop writes them.
Records answers_of(const std::vector<AnswerCell>& cells) {
  Records out{answer_columns(), {}};
  for (const AnswerCell& cell : cells) {
    for (const char* mode : {"teacher", "greedy"}) {
      std::vector<Value>& row = out.rows.emplace_back(out.columns.size());
      const auto set = [&](const char* key, Value value) { row[out.column(key)] = std::move(value); };
      set("item", cell.item);
      set("workload", cell.workload);
      set("policy", cell.policy);
      set("params", cell.policy + "()");
      set("budget", cell.budget);
      set("budget_tokens", std::uint64_t{10});
      set("cut", cell.cut);
      set("seed", std::uint64_t{0});
      set("mode", std::string(mode));
      set("tokens", cell.tokens);
      set("held_bytes", cell.held_kib * 1024);
      set("skipped", std::string());
      if (std::string(mode) == "teacher") {
        set("kl", cell.kl);
      } else {
        set("right", cell.right);
        set("right_full", cell.right_full);
        if (cell.right_full == 1) set("kept", cell.right);
        set("agreement", cell.agreement);
      }
    }
  }
  return out;
}

/// Three items of keys and two of text-like questions that the full cache fails. `good` answers all keys,
/// `cheap` one of them.
Records two_workloads() {
  return answers_of({{"k0", "keys", "good", "10%", "prompt", 1, 1, 0.1, 2},
                     {"k0", "keys", "cheap", "10%", "prompt", 1, 1, 0.3, 1},
                     {"k1", "keys", "good", "10%", "prompt", 1, 1, 0.1, 2},
                     {"k1", "keys", "cheap", "10%", "prompt", 0, 1, 0.5, 0},
                     {"k2", "keys", "good", "10%", "prompt", 1, 1, 0.1, 2},
                     {"k2", "keys", "cheap", "10%", "prompt", 0, 1, 0.7, 0},
                     {"h0", "hard", "good", "10%", "prompt", 0, 1, 0.2, 1},
                     {"h0", "hard", "cheap", "10%", "prompt", 1, 1, 0.2, 1},
                     {"h1", "hard", "good", "10%", "prompt", 0, 0, 0.2, 1},
                     {"h1", "hard", "cheap", "10%", "prompt", 1, 0, 0.2, 1}});
}

const std::map<std::string, std::string> kRoles{{"good()", "policy"}, {"cheap()", "policy"}};

Statistics statistics(const Records& answers, double least_full) {
  std::vector<TraceId> lengths;
  for (const std::string& item : distinct(answers, "item")) lengths.push_back({item, "", 100, 0});
  std::vector<const Metric*> metrics;
  for (const Metric& metric : answer_metrics()) metrics.push_back(&metric);
  return statistics_of(comparable_answers(answers, kRoles, least_full), lengths, {.resamples = 100}, metrics);
}

}  // namespace

TEST_CASE("answers: what the full cache answers is counted by item, workload and cut") {
  const std::vector<FullAnswers> found = full_answers(two_workloads());
  REQUIRE(found.size() == 2);
  CHECK((found[0].workload == "keys" && found[0].cut == "prompt" && found[0].asked == 3 &&
         found[0].right == 3));
  CHECK((found[1].workload == "hard" && found[1].asked == 2 && found[1].right == 1));
  CHECK(found[1].share() == 0.5);
  CHECK(full_answers({answer_columns(), {}}).empty());
}

TEST_CASE("answers: the rows of both modes are one, and a workload that the full cache fails is not right") {
  const Records all = comparable_answers(two_workloads(), kRoles, 0.5);
  REQUIRE(all.rows.size() == 10);
  CHECK(text(all.rows[3][all.column("trace")]) == "k1");
  CHECK(number(all.rows[3][all.column("right")]) == 0.0);
  CHECK(number(all.rows[3][all.column("kl")]) == 0.5);
  CHECK(number(all.rows[6][all.column("right")]) == 0.0);
  const Records gated = comparable_answers(two_workloads(), kRoles, 0.51);
  CHECK(number(gated.rows[3][gated.column("right")]) == 0.0);
  CHECK_FALSE(number(gated.rows[6][gated.column("right")]));
  CHECK(number(gated.rows[6][gated.column("kl")]) == 0.2);
}

TEST_CASE("answers: means, differences and ranks are those of the ranked workloads") {
  const Statistics made = statistics(two_workloads(), 0.9);
  std::map<std::string, double> right;
  for (const std::vector<Value>& row : made.means.rows)
    if (text(row[0]) == "right" && text(row[made.means.column("workload")]) == "all")
      right[text(row[made.means.column("policy")])] = *number(row[made.means.column("mean")]);
  CHECK(right == std::map<std::string, double>{{"good", 1.0}, {"cheap", 1.0 / 3}});
  const Records ranked = ranked_answers(two_workloads(), made.means);
  CHECK(distinct(ranked, "item") == std::vector<std::string>{"k0", "k1", "k2"});
  CHECK(ranked_answers(two_workloads(), {}).rows.empty());
}

TEST_CASE("answers: a workload that ranks no policy is told with its accuracy") {
  const Findings found = failed_workloads(full_answers(two_workloads()), 0.9);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("not ranked by the answers to `hard`"));
  CHECK(found[0].details ==
        std::vector<std::string>{"`hard`, cut prompt: question known to the policy: the full "
                                 "cache answers 1 of 2 questions right, 50.0%."});
  CHECK(failed_workloads(full_answers(two_workloads()), 0.5).empty());
}

TEST_CASE("answers: where no item is ranked, policies are compared by KL") {
  const Records answers = two_workloads();
  const Statistics made = statistics(answers, 1.0 + 1e-9);
  const Evidence evidence("prompt", made.means, made.differences, made.ranks, {});
  CHECK_FALSE((evidence.decides("right") || evidence.decides("kept")));
  CHECK(evidence.decides("kl"));
  const std::vector<PolicyMean> order = contest(evidence, {"kl", kAllWorkloads, "10%"}, answer_metric("kl"));
  CHECK(order.at(0).policy == "good");
  CHECK(order.at(0).traces == 5);
}

TEST_CASE("answers: a workload that the full cache fails is compared by what is kept, from enough on") {
  const auto made_of = [](std::uint64_t answered) {
    std::vector<AnswerCell> cells;
    for (std::uint64_t i = 0; i < 2 * answered; ++i)
      for (const char* policy : {"good", "cheap"})
        cells.push_back({.item = "h" + std::to_string(i),
                         .workload = "hard",
                         .policy = policy,
                         .right = i >= answered ? policy == std::string("cheap")
                                                : i % (policy == std::string("good") ? 2U : 4U) == 0,
                         .right_full = i < answered ? 1U : 0U});
    return answers_of(cells);
  };
  for (const std::uint64_t answered : {kLeastAnswered - 1, kLeastAnswered}) {
    const Records answers = made_of(answered);
    const Statistics made = statistics(answers, 0.9);
    const Evidence evidence("prompt", made.means, made.differences, made.ranks, {});
    const bool enough = answered == kLeastAnswered;
    REQUIRE(evidence.decides("kept") == enough);
    FigureTables tables;
    tables.tables["means"] = made.means;
    tables.tables["answers"] = answers;
    const std::vector<Figure> drawn = figure_kind("accuracy").build(tables, {});
    REQUIRE(drawn.size() == (enough ? 1U : 0U));
    CHECK(failed_workloads(full_answers(answers), 0.9)
              .at(0)
              .details.at(0)
              .ends_with(enough ? "accuracy kept is over those." : "50.0%."));
    if (!enough) continue;
    const std::vector<PolicyMean> order =
        contest(evidence, {"kept", kAllWorkloads, "10%"}, answer_metric("kept"));
    CHECK(order.at(0).policy == "good");
    CHECK(order.at(0).mean == 0.5);
    CHECK(order.at(1).mean == 0.25);
    CHECK(order.at(0).traces == kLeastAnswered);
    CHECK(std::get<Chart>(drawn[0].panels.at(0).content).series.at(0).points.at(0).y == 0.5);
  }
}

TEST_CASE("answers: rows of older versions, which have no kept, are read") {
  Records older = two_workloads();
  const std::size_t kept = older.column("kept");
  older.columns.erase(older.columns.begin() + static_cast<std::ptrdiff_t>(kept));
  for (std::vector<Value>& row : older.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(kept));
  const Records all = comparable_answers(older, kRoles, 0.9);
  CHECK(number(all.rows[3][all.column("kl")]) == 0.5);
  CHECK_FALSE(number(all.rows[3][all.column("kept")]));
}

TEST_CASE("answers: rows without roles are of policies, but for the full cache") {
  const Records rows =
      comparable_answers(answers_of({{"k0", "keys", "full"}, {"k0", "keys", "fullest"}}), {}, 0);
  CHECK(text(rows.rows.at(0)[rows.column("role")]) == "own_budget");
  CHECK(text(rows.rows.at(1)[rows.column("role")]) == "policy");
}

TEST_CASE("answers: figures of accuracy and of divergence") {
  FigureTables tables;
  const Records answers = two_workloads();
  Statistics made = statistics(answers, 0.9);
  tables.tables["means"] = made.means;
  tables.tables["answers"] = answers;
  const std::vector<Figure> accuracy = figure_kind("accuracy").build(tables, {});
  REQUIRE(accuracy.size() == 1);
  const auto& chart = std::get<Chart>(accuracy[0].panels.at(0).content);
  REQUIRE(chart.series.size() == 3);
  CHECK((chart.series[0].label == "good" && chart.series[0].points[0].y == 1.0));
  CHECK((chart.series[1].label == "cheap" && chart.series[1].points[0].y == Approx(1.0 / 3)));
  CHECK((chart.series[2].weight == Weight::bound && chart.series[2].points[0].y == 1.0));

  const std::vector<Figure> divergence = figure_kind("divergence").build(tables, {});
  REQUIRE(divergence.size() == 1);
  for (const Series& series : std::get<Chart>(divergence[0].panels.at(0).content).series) {
    std::vector<double> shares;
    for (const Point& point : series.points) shares.push_back(point.y);
    // Of five answers each, `good` parts after one token in two, `cheap` at once in two and after one in
    // three.
    const std::vector<double> expected =
        series.label == "good" ? std::vector<double>{1, 1, 0.6} : std::vector<double>{1, 0.6, 0};
    REQUIRE(shares.size() == 3);
    for (std::size_t n = 0; n < 3; ++n) CHECK(shares[n] == Approx(expected[n]).margin(1e-12));
  }
  CHECK_THROWS_WITH(figure_kind("accuracy").build(tables, {.cut = "promt"}),
                    Contains("Did you mean prompt?"));
  tables.tables.erase("answers");
  CHECK(figure_kind("divergence").build(tables, {}).empty());
}

TEST_CASE("answers: figures of bytes are by right answers, or by what is asked") {
  std::vector<AnswerCell> cells;
  for (const char* item : {"k0", "k1"}) {
    cells.push_back({.item = item, .workload = "keys", .policy = "full", .held_kib = 40});
    cells.push_back({.item = item, .workload = "keys", .policy = "good", .kl = 0.5, .held_kib = 10});
    cells.push_back({.item = item,
                     .workload = "keys",
                     .policy = "good",
                     .budget = "5%",
                     .right = item == std::string("k0"),
                     .kl = 1.5,
                     .held_kib = 5});
    cells.push_back({.item = item, .workload = "keys", .policy = "bad", .right = 0, .kl = 2, .held_kib = 20});
  }
  FigureTables tables;
  tables.tables["answers"] = answers_of(cells);
  tables.tables["means"] = statistics(tables.tables["answers"], 0.9).means;
  const auto front = [&](const FigureChoice& choice) {
    const std::vector<Figure> figures = figure_kind("pareto-answers").build(tables, choice);
    const auto& chart = std::get<Chart>(figures.at(0).panels.at(0).content);
    for (const Series& series : chart.series)
      if (series.label == "front") return series.points;
    return std::vector<Point>{};
  };
  const std::vector<Point> right = front({});
  REQUIRE(right.size() == 2);
  CHECK((right[0].x == 5 && right[0].y == 0.5 && right[1].x == 10 && right[1].y == 1));
  const std::vector<Point> kl = front({.metric = "kl"});
  REQUIRE(kl.size() == 3);
  CHECK((kl[2].x == 40 && kl[2].y == 0));
  CHECK_THROWS_WITH(front({.metric = "lk"}), Contains("kl"));
  const std::vector<Figure> next = figure_kind("next-byte-answers").build(tables, {.metric = "kl"});
  const auto& gains = std::get<Chart>(next.at(0).panels.at(0).content);
  REQUIRE(gains.series.size() == 1);
  CHECK(gains.series[0].points.at(0).y == Approx(0.2));  // (1.5 - 0.5) / (10 - 5)
}

}  // namespace kvsim::analysis::test_answer_statistics
