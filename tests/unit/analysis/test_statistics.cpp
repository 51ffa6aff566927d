#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <sstream>

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::analysis::test_statistics {

namespace {

/// Results of made-up traces.
struct Made {
  std::vector<analysis::Row> rows{};
  std::vector<TraceId> traces{};

  void trace(const std::string& name, std::uint64_t prompt) { traces.push_back({name, "", prompt, 8}); }
  void add(const std::string& trace, const std::string& workload, const std::string& policy,
           std::optional<double> loss, const std::string& budget = "25%", std::uint64_t seed = 0) {
    analysis::Row row;
    row.trace = trace;
    row.workload = workload;
    row.policy = policy;
    row.params = policy + "()+uniform()";
    row.budget = budget;
    row.seed = seed;
    row.set("attention_loss", analysis::value_of(loss));
    row.oracle = policy == "belady";
    row.own_budget = policy == "full";
    rows.push_back(row);
  }
  Statistics statistics(const StatisticsOptions& options = {{"attention_loss"}}) const {
    return statistics_of(records_of(rows), traces, options);
  }
};

/// The only row of a table in which the given columns say the given.
std::vector<Value> row_where(const Records& table, const std::map<std::string, std::string>& wanted) {
  std::vector<std::vector<Value>> found;
  for (const std::vector<Value>& row : table.rows)
    if (std::all_of(wanted.begin(), wanted.end(),
                    [&](const auto& field) { return text(row[table.column(field.first)]) == field.second; }))
      found.push_back(row);
  REQUIRE(found.size() == 1);
  return found.front();
}

std::optional<double> field(const Records& table, const std::map<std::string, std::string>& wanted,
                            const std::string& column) {
  return number(row_where(table, wanted)[table.column(column)]);
}

std::vector<std::string> lines_of(const Records& table) {
  std::ostringstream out;
  write_csv(out, table);
  std::istringstream in(out.str());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// Two workloads of unequal size, three policies, two budgets, an oracle, two seeds; values from a generator.
Made many() {
  Made made;
  for (int t = 0; t < 11; ++t) {
    const std::string name = "t" + std::to_string(t), workload = t < 4 ? "copy" : "needle";
    made.trace(name, 100);
    for (const char* policy : {"a", "b", "c", "belady"})
      for (const char* budget : {"10%", "25%"})
        for (std::uint64_t seed : {0, 1})
          made.add(name, workload, policy,
                   uniform01(combine({key_of(name), key_of(policy), key_of(budget), seed})), budget, seed);
  }
  return made;
}

// The definitions, one value at a time.

double slow_quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 == samples.size()) return samples.back();
  const double part = place - static_cast<double>(below);
  return samples[below] * (1 - part) + samples[below + 1] * part;
}

/// The values of one trace's seeds.
using Runs = std::vector<double>;

/// Means of one resample after the other: of each trace that is drawn, as many of its seeds are drawn as it
/// has. Traces by workload, in order of names.
std::vector<double> slow_means(const std::map<std::string, std::vector<Runs>>& values_by_workload,
                               std::uint64_t resamples, std::uint64_t seed) {
  std::vector<double> means;
  for (std::uint64_t r = 0; r < resamples; ++r) {
    double sum = 0, n = 0;
    for (const auto& [workload, values] : values_by_workload) {
      for (std::uint64_t k = 0; k < values.size(); ++k, ++n) {
        const std::uint64_t key = combine({combine({seed, key_of("statistics"), key_of(workload)}), r, k});
        const Runs& runs =
            values[static_cast<std::size_t>(uniform01(key) * static_cast<double>(values.size()))];
        for (std::uint64_t run = 0; run < runs.size(); ++run) {
          const std::uint64_t drawn =
              combine({combine({seed, key_of("statistics"), key_of(workload)}), r, k, run});
          sum += runs[static_cast<std::size_t>(uniform01(drawn) * static_cast<double>(runs.size()))] /
                 static_cast<double>(runs.size());
        }
      }
    }
    means.push_back(sum / n);
  }
  return means;
}

}  // namespace

TEST_CASE("means, differences and ranks of a study worked by hand") {
  Made made;
  // Losses, lower is better. Seeds of the first trace: 0.1 and 0.3, so its value for a is 0.2.
  for (const char* name : {"x", "y", "z"}) made.trace(name, 100);
  made.add("x", "copy", "a", 0.1, "25%", 0);
  made.add("x", "copy", "a", 0.3, "25%", 1);
  made.add("x", "copy", "b", 0.4);
  made.add("x", "copy", "full", 0.0);
  made.add("x", "copy", "belady", 0.05);
  made.add("y", "copy", "a", 0.5);
  made.add("y", "copy", "b", 0.5);
  made.add("z", "copy", "a", 0.8);
  made.add("z", "copy", "b", 0.6);
  const Statistics got = made.statistics();

  CHECK(*field(got.means, {{"policy", "a"}}, "mean") == Approx(0.5));  // (0.2 + 0.5 + 0.8) / 3
  CHECK(field(got.means, {{"policy", "a"}}, "traces") == 3.0);
  CHECK(*field(got.means, {{"policy", "b"}}, "mean") == Approx(0.5));
  CHECK(field(got.means, {{"policy", "belady"}}, "mean") == 0.05);
  CHECK_FALSE(field(got.means, {{"policy", "belady"}}, "low"));  // a single trace
  CHECK(text(row_where(got.means, {{"policy", "full"}})[got.means.column("role")]) == "own_budget");

  // Only a and b are policies: one pair. a is better in x, as good in y, worse in z.
  REQUIRE(got.differences.rows.size() == 1);
  CHECK(*field(got.differences, {}, "difference") == Approx(0.0).margin(1e-15));  // (-0.2 + 0 + 0.2) / 3
  CHECK(field(got.differences, {}, "better") == 1.0);
  CHECK(field(got.differences, {}, "equal") == 1.0);
  CHECK(field(got.differences, {}, "worse") == 1.0);
  // The extremes of a resample: x three times, z three times.
  CHECK(*field(got.differences, {}, "low") == Approx(-0.2));
  CHECK(*field(got.differences, {}, "high") == Approx(0.2));

  // Ranks in x: 1, 2; in y: 1.5 each; in z: 2, 1. No agreement at all: every policy's ranks add up to 4.5.
  CHECK(field(got.ranks, {{"policy", "a"}}, "mean_rank") == 1.5);
  CHECK(field(got.ranks, {{"policy", "b"}}, "mean_rank") == 1.5);
  CHECK(field(got.ranks, {{"policy", "a"}}, "concordance") == 0.0);
  CHECK(*field(got.ranks, {{"policy", "a"}}, "best_share") +
            *field(got.ranks, {{"policy", "b"}}, "best_share") ==
        Approx(1.0));
}

TEST_CASE("higher is better where the metric says so") {
  Made made;
  for (const char* name : {"x", "y"}) {
    made.trace(name, 100);
    made.add(name, "", "a", 0.5);
    made.add(name, "", "b", 0.25);
  }
  for (analysis::Row& row : made.rows) row.set("r", analysis::value_of(row["attention_loss"]));
  const Statistics got = made.statistics({{"r", "attention_loss"}});
  CHECK(field(got.ranks, {{"policy", "a"}, {"metric", "r"}}, "rank") == 1.0);
  CHECK(field(got.ranks, {{"policy", "a"}, {"metric", "attention_loss"}}, "rank") == 2.0);
  CHECK(field(got.differences, {{"metric", "r"}}, "better") == 2.0);
  CHECK(field(got.differences, {{"metric", "attention_loss"}}, "worse") == 2.0);
  CHECK(field(got.differences, {{"metric", "r"}}, "difference") == 0.25);  // as it is, not turned
}

TEST_CASE("each cut has statistics of its own, the same as if it were alone") {
  Made alone = many(), both = alone;
  for (analysis::Row& row : alone.rows) row.cut = "prompt";
  both.rows = alone.rows;
  both.traces.clear();
  for (const TraceId& trace : alone.traces) {
    both.traces.push_back({trace.name, "", trace.prompt, 8, "prompt"});
    both.traces.push_back({trace.name, "", trace.prompt - 30, 38, "question"});
  }
  for (analysis::Row row : alone.rows) {
    row.cut = "question";
    row.set("attention_loss", 1 - *row["attention_loss"]);
    both.rows.push_back(row);
  }
  const Statistics first = alone.statistics(), got = both.statistics();
  const auto at = [](const Records& table, const std::string& cut) {
    Records out{table.columns, {}};
    for (const std::vector<Value>& row : table.rows)
      if (text(row[table.column("cut")]) == cut) out.rows.push_back(row);
    return out;
  };
  CHECK(lines_of(at(got.means, "prompt")) == lines_of(first.means));
  CHECK(lines_of(at(got.differences, "prompt")) == lines_of(first.differences));
  CHECK(lines_of(at(got.ranks, "prompt")) == lines_of(first.ranks));
  const std::map<std::string, std::string> a{{"policy", "a"}, {"budget", "10%"}, {"workload", "all"}};
  const Records there = at(got.means, "question");
  CHECK(*field(there, a, "mean") == Approx(1 - *field(first.means, a, "mean")));
  CHECK(field(there, a, "prompt_min") == 70.0);
  CHECK(got.notes == first.notes);  // what holds at both cuts is said once
}

TEST_CASE("bounds and costs have means, but no winners") {
  Made made = many();
  for (analysis::Row& row : made.rows) row.set("kept_bytes", 640U);
  const Statistics got = made.statistics({{"kept_bytes"}});
  CHECK(got.means.rows.size() == 24);  // 4 policies x 2 budgets x (all + 2 workloads)
  CHECK(field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "all"}}, "mean") == 640.0);
  CHECK(got.differences.rows.empty());
  CHECK(got.ranks.rows.empty());
}

TEST_CASE("intervals are those of the definition, taken one resample at a time") {
  const Made made = many();
  const StatisticsOptions options{
      .metrics = {"attention_loss"}, .resamples = 500, .seed = 9, .confidence = 0.9};
  const Statistics got = made.statistics(options);
  std::map<std::string, std::map<std::string, std::vector<Runs>>> values;  // by policy, workload
  std::vector<TraceId> traces = made.traces;
  std::sort(traces.begin(), traces.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (const TraceId& trace : traces) {
    std::map<std::string, Runs> seeds;
    std::string workload;
    for (const analysis::Row& row : made.rows) {
      if (row.trace != trace.name || row.budget != "10%") continue;
      seeds[row.policy].push_back(*row["attention_loss"]);
      workload = row.workload;
    }
    for (const auto& [policy, runs] : seeds) values[policy][workload].push_back(runs);
    values["a - b"][workload].push_back({seeds["a"][0] - seeds["b"][0], seeds["a"][1] - seeds["b"][1]});
  }
  std::map<std::string, std::vector<double>> means;
  for (const auto& [policy, of] : values) means[policy] = slow_means(of, 500, 9);

  const std::map<std::string, std::string> here{{"budget", "10%"}, {"workload", "all"}};
  for (const std::string policy : {"a", "b", "c", "belady"}) {
    std::map<std::string, std::string> where = here;
    where["policy"] = policy;
    CHECK(*field(got.means, where, "low") == Approx(slow_quantile(means[policy], 0.05)));
    CHECK(*field(got.means, where, "high") == Approx(slow_quantile(means[policy], 0.95)));
  }
  std::map<std::string, std::string> pair = here;
  pair["policy"] = "a";
  pair["other"] = "b";
  CHECK(*field(got.differences, pair, "low") == Approx(slow_quantile(means["a - b"], 0.05)));
  CHECK(*field(got.differences, pair, "high") == Approx(slow_quantile(means["a - b"], 0.95)));

  // Of one workload: its own traces, drawn as in the whole.
  const std::vector<double> copy = slow_means({{"copy", values["a"]["copy"]}}, 500, 9);
  CHECK(*field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "copy"}}, "high") ==
        Approx(slow_quantile(copy, 0.95)));

  std::map<std::string, std::vector<double>> ranks;
  double a_is_best = 0;
  for (std::size_t r = 0; r < 500; ++r) {
    for (const std::string policy : {"a", "b", "c"}) {
      double rank = 1;
      for (const std::string other : {"a", "b", "c"}) rank += means[other][r] < means[policy][r] ? 1 : 0;
      ranks[policy].push_back(rank);
    }
    a_is_best += ranks["a"].back() == 1 ? 1 : 0;
  }
  std::map<std::string, std::string> a = here;
  a["policy"] = "a";
  CHECK(*field(got.ranks, a, "rank_low") == slow_quantile(ranks["a"], 0.05));
  CHECK(*field(got.ranks, a, "rank_high") == slow_quantile(ranks["a"], 0.95));
  CHECK(*field(got.ranks, a, "best_share") == Approx(a_is_best / 500));
}

TEST_CASE("an interval covers the luck of the seeds that it is of") {
  // All prompts agree, and half of the seeds answer: without its seeds the mean of 0.5 would be a point.
  Made made;
  for (std::size_t t = 0; t < 24; ++t) {
    made.trace("t" + std::to_string(t), 100);
    for (const std::uint64_t seed : {0U, 1U, 2U, 3U})
      made.add("t" + std::to_string(t), "copy", "a", seed % 2 == 0 ? 1 : 0, "25%", seed);
  }
  const Statistics got = made.statistics({.metrics = {"attention_loss"}, .resamples = 4000});
  CHECK(*field(got.means, {}, "mean") == 0.5);
  // A mean of 96 fair draws has a deviation of sqrt(1/4 / 96) = 0.051, 95 % lie within 1.96 of them.
  CHECK(*field(got.means, {}, "low") == Approx(0.4).margin(0.015));
  CHECK(*field(got.means, {}, "high") == Approx(0.6).margin(0.015));
}

TEST_CASE("many draws approach the bootstrap of all resamples") {
  // Of 3 traces there are 27 resamples, here with means k / 9 for sums k of values 0, 1 and 3.
  const std::vector<double> values{0.0, 1.0 / 3, 1.0};
  std::vector<double> exact;
  for (double a : values)
    for (double b : values)
      for (double c : values) exact.push_back((a + b + c) / 3);
  Made made;
  for (std::size_t t = 0; t < 3; ++t) {
    made.trace("t" + std::to_string(t), 100);
    made.add("t" + std::to_string(t), "copy", "a", values[t]);
  }
  // Levels in the middle of a step of the exact distribution, whose steps are multiples of 1/27.
  for (const double outside : {1.5 / 27, 2.5 / 27, 5.5 / 27}) {
    const Statistics got =
        made.statistics({.metrics = {"attention_loss"}, .resamples = 40000, .confidence = 1 - 2 * outside});
    std::sort(exact.begin(), exact.end());
    CHECK(*field(got.means, {}, "low") ==
          Approx(exact[static_cast<std::size_t>(outside * 27)]).margin(1e-12));
    CHECK(*field(got.means, {}, "high") ==
          Approx(exact[26 - static_cast<std::size_t>(outside * 27)]).margin(1e-12));
  }
}

TEST_CASE("the order of rows is nothing") {
  const Made made = many();
  Made shuffled = made;
  std::sort(shuffled.rows.begin(), shuffled.rows.end(), [](const analysis::Row& a, const analysis::Row& b) {
    return *a["attention_loss"] < *b["attention_loss"];
  });
  std::reverse(shuffled.traces.begin(), shuffled.traces.end());
  CHECK(lines_of(shuffled.statistics().means) == lines_of(made.statistics().means));
  CHECK(lines_of(shuffled.statistics().ranks) == lines_of(made.statistics().ranks));
}

TEST_CASE("a policy's numbers do not depend on what else was studied") {
  const Made made = many();
  Made fewer = made;
  std::erase_if(fewer.rows,
                [](const analysis::Row& row) { return row.policy == "b" || row.budget == "25%"; });
  const std::vector<std::string> all = lines_of(made.statistics().means);
  for (const std::string& line : lines_of(fewer.statistics().means))
    CHECK(std::count(all.begin(), all.end(), line) == 1);
  Made one_kind = made;
  std::erase_if(one_kind.rows, [](const analysis::Row& row) { return row.workload == "copy"; });
  // A workload's own interval is the same in a study of that workload alone, there called all.
  CHECK(field(one_kind.statistics().means, {{"policy", "a"}, {"budget", "10%"}}, "low") ==
        field(made.statistics().means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "needle"}}, "low"));
}

TEST_CASE("other seeds draw other resamples, and nothing else") {
  const Made made = many();
  const Statistics one = made.statistics({.metrics = {"attention_loss"}, .seed = 1});
  const Statistics two = made.statistics({.metrics = {"attention_loss"}, .seed = 2});
  const std::map<std::string, std::string> a{{"policy", "a"}, {"budget", "10%"}, {"workload", "all"}};
  CHECK(field(one.means, a, "mean") == field(two.means, a, "mean"));
  CHECK(field(one.means, a, "low") != field(two.means, a, "low"));
  CHECK(field(one.ranks, a, "mean_rank") == field(two.ranks, a, "mean_rank"));
}

TEST_CASE("a policy that lacks values is compared where it has them, and not ranked") {
  Made made;
  for (int t = 0; t < 4; ++t) {
    const std::string name = "t" + std::to_string(t);
    made.trace(name, 100);
    made.add(name, "copy", "a", 0.1 * (t + 1));
    made.add(name, "copy", "b", 0.2 * (t + 1));
    made.add(name, "copy", "c", t == 3 ? std::nullopt : std::optional(0.05));
  }
  const Statistics got = made.statistics();
  CHECK(field(got.means, {{"policy", "c"}}, "traces") == 3.0);
  CHECK(field(got.differences, {{"policy", "a"}, {"other", "c"}}, "traces") == 3.0);
  CHECK(*field(got.differences, {{"policy", "a"}, {"other", "c"}}, "difference") == Approx(0.2 - 0.05));
  CHECK(field(got.differences, {{"policy", "a"}, {"other", "b"}}, "traces") == 4.0);
  CHECK(got.ranks.rows.size() == 2);
  CHECK(field(got.ranks, {{"policy", "a"}}, "traces") == 4.0);
  CHECK(std::count(got.notes.begin(), got.notes.end(),
                   "Not ranked at 25% by attention_loss, for want of a value in some trace where others have "
                   "one: c.") == 1);
}

TEST_CASE("a seed without a value leaves the trace without one") {
  Made made = many();
  made.rows[0].set("attention_loss", {});  // a, t0, 10%, seed 0
  const Statistics got = made.statistics();
  CHECK(field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "all"}}, "traces") == 10.0);
  CHECK(field(got.means, {{"policy", "b"}, {"budget", "10%"}, {"workload", "all"}}, "traces") == 11.0);
}

TEST_CASE("a workload of one trace has no interval, and leaves none to the whole") {
  Made made = many();
  made.trace("lonely", 100);
  made.add("lonely", "passkey", "a", 0.5, "10%");
  const Statistics got = made.statistics();
  CHECK_FALSE(field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "all"}}, "low"));
  CHECK_FALSE(field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "passkey"}}, "low"));
  CHECK(field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "copy"}}, "low"));
  CHECK(field(got.means, {{"policy", "b"}, {"budget", "10%"}, {"workload", "all"}}, "low"));
  REQUIRE(got.notes.size() >= 2);
  CHECK(got.notes[0].find("No interval for all, passkey") == 0);
  CHECK(got.notes[1].find("copy (4), passkey (1)") != std::string::npos);
}

TEST_CASE("unequal prompts are not pooled in silence") {
  Made made = many();
  CHECK(made.statistics().notes.size() == 1);  // 4 traces of copy are few
  made.traces[0].prompt = 98;
  CHECK(made.statistics().notes.size() == 1);
  CHECK(field(made.statistics().means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "copy"}},
              "prompt_min") == 98.0);
  made.traces[0].prompt = 64;
  const Statistics got = made.statistics();
  REQUIRE(got.notes.size() == 3);
  CHECK(got.notes[0].find("Workload all pools prompts of 64 to 100 tokens") == 0);
  CHECK(got.notes[1].find("Workload copy pools prompts of 64 to 100 tokens") == 0);
  CHECK(field(got.means, {{"policy", "a"}, {"budget", "10%"}, {"workload", "needle"}}, "prompt_min") ==
        100.0);
}

TEST_CASE("traces that agree, and ties") {
  Made made;
  for (int t = 0; t < 3; ++t) {
    const std::string name = "t" + std::to_string(t);
    made.trace(name, 100);
    made.add(name, "copy", "a", 0.1 * (t + 1));
    made.add(name, "copy", "b", 0.1 * (t + 1));
    made.add(name, "copy", "c", 0.9);
  }
  const Statistics got = made.statistics();
  for (const char* policy : {"a", "b"}) {
    CHECK(field(got.ranks, {{"policy", policy}}, "rank") == 1.5);
    CHECK(field(got.ranks, {{"policy", policy}}, "rank_low") == 1.5);
    CHECK(field(got.ranks, {{"policy", policy}}, "best_share") == 0.5);
  }
  CHECK(field(got.ranks, {{"policy", "c"}}, "rank") == 3.0);
  CHECK(field(got.ranks, {{"policy", "c"}}, "best_share") == 0.0);
  // All agree. Sums of ranks 4.5, 4.5, 9: 12 (1.5^2 + 1.5^2 + 3^2) / (3^2 (3^3 - 3) - 3 * 3 (2^3 - 2)) = 162
  // / 162.
  CHECK(*field(got.ranks, {{"policy", "c"}}, "concordance") == Approx(1.0));
}

TEST_CASE("nothing in common is a concordance of about nothing") {
  Made made;
  // Every one of the 6 orders of three policies once.
  const std::vector<std::vector<double>> orders{{1, 2, 3}, {1, 3, 2}, {2, 1, 3},
                                                {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
  for (std::size_t t = 0; t < orders.size(); ++t) {
    const std::string name = "t" + std::to_string(t);
    made.trace(name, 100);
    made.add(name, "copy", "a", orders[t][0]);
    made.add(name, "copy", "b", orders[t][1]);
    made.add(name, "copy", "c", orders[t][2]);
  }
  CHECK(*field(made.statistics().ranks, {{"policy", "a"}}, "concordance") == Approx(0.0).margin(1e-15));
}

TEST_CASE("only whole models count") {
  Made made = many();
  const std::vector<std::string> before = lines_of(made.statistics().means);
  analysis::Row layer = made.rows[0];
  layer.scope = Scope::layer;
  layer.set("attention_loss", 1.0);
  made.rows.push_back(layer);
  CHECK(lines_of(made.statistics().means) == before);
}

TEST_CASE("what cannot be a study is refused") {
  Made made = many();
  SECTION("the same row twice") {
    made.rows.push_back(made.rows[3]);
    CHECK_THROWS_WITH(made.statistics(), Catch::Contains("two rows of a()+uniform() at 25%"));
  }
  SECTION("a trace of two workloads") {
    made.rows[0].workload = "passkey";
    CHECK_THROWS_WITH(made.statistics(), Catch::Contains("workload"));
  }
  SECTION("a workload called as the whole") {
    for (analysis::Row& row : made.rows) row.workload = "all";
    CHECK_THROWS_AS(made.statistics(), Error);
  }
  SECTION("an unknown metric") {
    CHECK_THROWS_WITH(made.statistics({{"attention_los"}}), Catch::Contains("attention_loss"));
  }
  SECTION("too few resamples") {
    CHECK_THROWS_AS(made.statistics({.metrics = {}, .resamples = 99}), Error);
  }
  SECTION("no confidence") {
    CHECK_THROWS_AS(made.statistics({.metrics = {}, .confidence = std::nan("")}), Error);
  }
}

TEST_CASE("no results, no statistics") {
  const Statistics got = statistics_of(records_of({}), {});
  CHECK(got.means.rows.empty());
  CHECK(got.ranks.rows.empty());
  CHECK(got.means.columns.size() == 13);
}

}  // namespace kvsim::analysis::test_statistics
