#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/report/findings.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/analysis/small_study.hpp"

namespace kvsim::analysis::test_report_findings {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

const Metric& loss() {
  return metric("attention_loss");
}

TEST_CASE("The best policy is told with its lead, if the interval of the difference carries it") {
  SmallStudy study;
  // 10 % against 15 %: 5 points, in an interval of 3 to 7.
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  const Findings found = best_policies(study.evidence(), loss());
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Equals("Lowest attention loss, on average over traces: `a` at 10%. The best is "
                                   "distinguishable from the next."));
  REQUIRE(found[0].details.size() == 1);
  CHECK_THAT(found[0].details[0],
             Equals("10%: `a`, 10.0% (9.0% to 11.0%; 6 traces); next is `b`, 5.0 points above it (3.0 to 7.0 "
                    "points), worse on 6 of 6 traces."));
}

TEST_CASE("A lead whose interval includes zero is none") {
  SmallStudy study;
  study.duel("b", 0.15, "a", 0.14, -0.01, 0.03, 2);
  study.mean("c", 0.16);
  study.rank("c", 3);
  study.difference("a", "c", -0.02, -0.05, 0.0, 4, 2);  // an interval that ends at zero includes it
  const Findings found = best_policies(study.evidence(), loss());
  CHECK_THAT(found[0].text, Contains("`a` at 10%. Nowhere is the best distinguishable"));
  CHECK_THAT(found[0].details[0], Contains("`b`, 1.0 points above it (\u22121.0 to 3.0 points), worse on 4 "
                                           "of 6 traces. Not distinguishable"));
  CHECK_THAT(found[0].details[0], Contains("Not distinguishable from the best: `b` and `c`."));
}

TEST_CASE("Budgets with the same winner are told together, and clear ones counted") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.budget = "25%";
  study.duel("a", 0.08, "b", 0.09, -0.02, 0.01, 4);
  CHECK_THAT(
      best_policies(study.evidence(), loss())[0].text,
      Contains(
          "`a` at every studied budget (2). The best is distinguishable from the next at 1 of 2 budgets."));
  study.budget = "64";
  study.duel("a", 0.08, "b", 0.07, 0.005, 0.015, 0);
  CHECK_THAT(best_policies(study.evidence(), loss())[0].text,
             Contains("`a` at 10% and 25%; `b` at 64 tokens."));
}

TEST_CASE("Small shares keep two digits") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.101, -0.002, 0.00014, 4);
  CHECK_THAT(best_policies(study.evidence(), loss())[0].details[0],
             Contains("0.1 points above it (\u22120.014 to 0.2 points)"));
}

TEST_CASE("Higher is better for some metrics") {
  SmallStudy study;
  study.metric = "r";
  study.mean("a", 0.5);
  study.mean("b", 0.8);
  study.rank("a", 2);
  study.rank("b", 1);
  study.difference("a", "b", -0.3, -0.4, -0.2, 0, 6);
  const Findings found = best_policies(study.evidence(), metric("r"));
  CHECK_THAT(found[0].text, Contains("Highest importance retained, on average over traces: `b` at 10%"));
  CHECK_THAT(found[0].details[0], Contains("next is `a`, 30.0 points below it"));
}

TEST_CASE("One trace ranks nothing") {
  SmallStudy study;
  study.traces = 1;
  study.mean("a", 0.10);
  study.mean("b", 0.15);
  study.rank("a", 1);
  study.rank("b", 2);
  study.difference("a", "b", -0.05, {}, {}, 1, 0);
  const Findings found = best_policies(study.evidence(), loss());
  CHECK_THAT(found[0].text, Contains("One trace cannot tell which policy is better. On this trace"));
  CHECK_THAT(found[0].details[0], Contains("no interval") && !Contains(": distinguishable"));
  CHECK(sufficient_budget(study.evidence()).empty());
  CHECK(stability(study.evidence(), loss()).empty());
  CHECK_THAT(few_traces(study.evidence())[0].text, Contains("A single trace is an anecdote"));
}

TEST_CASE("Policies that did not run on every trace are not compared, and oracles never") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.mean("x", 0.01, {}, {}, "oracle");
  study.mean("f", 0.0, {}, {}, "own_budget");
  study.traces = 3;
  study.mean("c", 0.05);  // no rank
  const Findings found = best_policies(study.evidence(), loss());
  CHECK_THAT(found[0].text, Contains("`a` at 10%") && !Contains("`c`") && !Contains("`x`"));
}

TEST_CASE("Equal means share the first place, and a policy alone is not compared") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.10, 0, 0, 0);
  CHECK_THAT(best_policies(study.evidence(), loss())[0].text,
             Contains("`a` and `b` at 10%. No other policy"));
  SmallStudy alone;
  alone.mean("a", 0.1, 0.05, 0.15);
  CHECK_THAT(best_policies(alone.evidence(), loss())[0].details[0],
             Equals("10%: `a`, 10.0% (5.0% to 15.0%; 6 traces)."));
}

TEST_CASE("Room left is measured to the best oracle over the same traces, and to the per-step ideal") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.mean("x", 0.06, 0.05, 0.07, "oracle");
  study.mean("y", 0.07, {}, {}, "oracle");
  // Seeds are averaged before traces: ((0.02 + 0.04) / 2 + 0.05) / 2 = 4 %.
  study.result("t1", "a", 10, 0.02, 0);
  study.result("t1", "a", 10, 0.04, 1);
  study.result("t2", "a", 10, 0.05);
  Findings found = room_left(study.evidence(), loss());
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("lie 4.0 points of attention loss."));
  CHECK_THAT(
      found[0].details[0],
      Equals("10%: `a` 10.0%, oracle `x` 6.0% (5.0% to 7.0%), the best tokens chosen anew at each step "
             "at its own split 4.0%."));
  study.traces = 2;
  study.mean("z", 0.01, {}, {}, "oracle");  // over other traces
  CHECK(room_left(study.evidence(), loss())[0].details == found[0].details);
}

TEST_CASE("Room left in R is measured to the best set of the size, whatever oracles of decoding keep") {
  SmallStudy study;
  study.metric = "r";
  study.duel("a", 0.90, "b", 0.80, 0.05, 0.15, 6);
  study.mean("x", 0.95, {}, {}, "oracle");
  study.result("t1", "a", 10, 0.92);
  const Findings found = room_left(study.evidence(), metric("r"));
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("the best set of the size, at its own split of the budget, lie 2.0 "
                                     "points of importance retained."));
  CHECK(found[0].details[0] == "10%: `a` 90.0%, the best set of the size at its own split 92.0%.");
}

TEST_CASE("A policy that beats every oracle splits the budget otherwise") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.mean("x", 0.12, {}, {}, "oracle");
  const Findings found = room_left(study.evidence(), loss());
  CHECK_THAT(found[0].details[0], Contains("splits the budget otherwise, or holds more."));
  CHECK(found[0].text == "No oracle does better than the best policy.");
}

TEST_CASE("Room left is measured to the bound over all splits where there is one") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.mean("x", 0.12, {}, {}, "oracle");  // at its own split the best policy passes it
  study.result("t1", "a", 10, 0.05, 0, 0.02);
  study.result("t1", "a", 10, 0.05, 1, 0.04);
  study.result("t2", "a", 10, 0.05, 0, 0.08);  // (0.03 + 0.08) / 2 = 5.5 %
  const Findings found = room_left(study.evidence(), loss());
  CHECK_THAT(found[0].text, Contains("that knows the future, at any split of the budget, lie 4.5 points"));
  CHECK_THAT(found[0].details[0], Contains("the best schedule that holds no more, at any split 5.5%"));
}

TEST_CASE("Agreement of traces has three words for it") {
  for (const auto& [w, words] :
       {std::pair(0.7, "Traces agree on the order of policies: Kendall's W is 0.70."),
        std::pair(0.69, "agree on the order of policies in part"),
        std::pair(0.39, "hardly agree on the order")}) {
    SmallStudy study;
    study.rank("b", 2, w, 1, 2);
    study.rank("a", 1, w, 1, 1.5);
    study.mean("a", 0.1);
    study.mean("b", 0.2);
    const Findings found = stability(study.evidence(), loss());
    REQUIRE(found.size() == 1);
    CHECK_THAT(found[0].text, Contains(words));
    CHECK_THAT(found[0].details[0],
               Contains("2 policies on 6 traces; the rank of `a` is between 1 and 1.5."));
  }
}

TEST_CASE("A workload stands apart only if another policy is surely better there") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.traces = 3;
  for (const char* workload : {"copy", "needle"}) {
    study.workload = workload;
    study.mean("a", 0.20, 0.18, 0.22);
    study.mean("b", 0.17, 0.15, 0.19);  // intervals overlap
    study.rank("a", 2);
    study.rank("b", 1);
  }
  CHECK_THAT(
      workloads_apart(study.evidence(), loss())[0].text,
      Equals("In none of 2 workloads is another policy distinguishably better than the one that is best over "
             "all."));
  study.difference("a", "b", 0.03, 0.01, 0.05, 0, 3);  // needle: the paired difference tells more
  const Findings found = workloads_apart(study.evidence(), loss());
  CHECK_THAT(found[0].text, Contains("in 1 of 2 workloads (`needle`)"));
  CHECK_THAT(found[0].details[0],
             Equals("`needle` at 10%: `b` 17.0% (15.0% to 19.0%; 3 traces), where `a`, best "
                    "over all, has 20.0% (18.0% to 22.0%)."));
}

TEST_CASE("Workloads with one trace each are not compared") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.traces = 1;
  for (const char* workload : {"copy", "needle"}) {
    study.workload = workload;
    study.mean("a", 0.20);
    study.mean("b", 0.10);
    study.rank("a", 2);
    study.rank("b", 1);
  }
  CHECK(workloads_apart(study.evidence(), loss()).empty());
}

TEST_CASE("The smallest budget with a small loss, by size and not by name") {
  SmallStudy study;
  study.budget = "9%";
  study.duel("a", 0.03, "b", 0.15, -0.13, -0.11, 6);
  study.result("t", "a", 9, 0);
  study.budget = "25%";
  study.duel("a", 0.02, "b", 0.04, -0.03, -0.01, 6);
  study.result("t", "a", 25, 0);
  study.budget = "5%";
  study.duel("a", 0.05, "b", 0.30, -0.3, -0.2, 6);  // 5 % is not below 5 %
  study.result("t", "a", 5, 0);
  CHECK(study.evidence().budgets() == std::vector<std::string>{"5%", "9%", "25%"});
  CHECK_THAT(sufficient_budget(study.evidence())[0].text,
             Equals("The smallest studied budget at which a policy loses less than 5% of attention is 9%: "
                    "`a`, 3.0% (2.0% "
                    "to 4.0%; 6 traces); 1 of 2 policies do."));
}

TEST_CASE("A small loss that its interval does not carry is called doubtful, and none is said to be none") {
  SmallStudy study;
  study.duel("a", 0.045, "b", 0.15, -0.13, -0.11, 6);
  CHECK_THAT(sufficient_budget(study.evidence())[0].text,
             Contains("not certain: the interval does not rule out 5%."));
  SmallStudy large;
  large.duel("a", 0.2, "b", 0.3, -0.2, -0.05, 6);
  CHECK_THAT(sufficient_budget(large.evidence())[0].text,
             Equals("At no studied budget does a policy lose less than 5% of attention. The least is 20.0% "
                    "(19.0% to 21.0%; 6 "
                    "traces), by `a` at 10%."));
}

TEST_CASE("Baselines: who is not better than chance") {
  SmallStudy study;
  study.duel("a", 0.10, "random", 0.50, -0.5, -0.3, 6);
  CHECK_THAT(against_baselines(study.evidence(), loss())[0].text,
             Contains("every other policy is distinguishably better"));
  study.mean("b", 0.49);
  study.rank("b", 3);
  study.difference("b", "random", -0.01, -0.03, 0.02, 3, 3);
  study.mean("c", 0.7);
  study.rank("c", 4);
  study.difference("random", "c", -0.2, -0.3, -0.1, 6, 0);
  const Findings found = against_baselines(study.evidence(), loss());
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("at some budget, `c` and `b` are not distinguishably better."));
  CHECK_THAT(found[0].details[0],
             Contains("1 of 3 policies are better. Not distinguishable: `b`. Worse: `c`."));
}

TEST_CASE("Open loop: where a policy retains less than nine tenths") {
  SmallStudy study;
  study.duel("a", 0.05, "b", 0.2, -0.2, -0.1, 6);
  study.mean("x", 0.5, {}, {}, "oracle");  // a bound is not replayed for its own sake
  study.budget = "25%";
  study.duel("a", 0.1, "b", 0.02, 0.05, 0.1, 0);  // 0.9 is not below
  study.budget = "5%";
  study.duel("a", 0.11, "b", 0.5, -0.5, -0.2, 6);
  const Findings found = open_loop(study.evidence());
  CHECK_THAT(found[0].text, Contains("real run would do: every policy at 5%; some policies at 10%."));
  REQUIRE(found[0].details.size() == 3);
  CHECK_THAT(found[0].details[0],
             Equals("10%: mean retained mass 80.0% to 95.0%; 1 of 2 policies below 90%: `b`."));
  CHECK_THAT(found[0].details[1],
             Equals("25%: mean retained mass 90.0% to 98.0%; 0 of 2 policies below 90%."));
}

TEST_CASE("Open loop: nothing generated, nothing retained") {
  SmallStudy study;
  study.metric = "r";
  study.mean("a", 0.5);
  CHECK_THAT(open_loop(study.evidence())[0].text, Contains("no step of these traces was measured") &&
                                                      Contains("compared by importance retained."));
  CHECK(open_loop(SmallStudy().evidence()).empty());
}

TEST_CASE("Few traces, over all and of a workload") {
  SmallStudy study;
  study.traces = 4;
  study.mean("a", 0.1);
  CHECK_THAT(few_traces(study.evidence())[0].text, Contains("Only 4 traces"));
  study.traces = 5;
  study.mean("b", 0.1);
  CHECK(few_traces(study.evidence()).empty());
  study.workload = "copy";
  study.traces = 2;
  study.mean("a", 0.1);
  CHECK_THAT(few_traces(study.evidence())[0].text, Contains("`copy` (2)"));
  study.workload = "text";  // without a value of the leading metric it is not few, but none
  study.metric = "r";
  study.mean("a", 0.1);
  CHECK_THAT(few_traces(study.evidence())[0].text, !Contains("`text`"));
}

TEST_CASE("Prompts of other lengths are told, those that differ by a word are not") {
  SmallStudy study;
  study.mean("a", 0.1, {}, {}, "policy", 98, 100);
  CHECK(unequal_lengths(study.evidence()).empty());
  study.mean("b", 0.1, {}, {}, "policy", 97, 99);
  CHECK_THAT(unequal_lengths(study.evidence())[0].text, Contains("97 to 100 tokens"));
}

TEST_CASE("Policies that end with more than the budget are told by how much") {
  const auto row_of = [](const char* policy, double held, bool oracle = false) {
    Row row;
    row.policy = policy;
    row.budget_tokens = 10;
    row.set("held_tokens", held);
    row.oracle = oracle;
    return row;
  };
  // a holds the budget but for a rounding, b appends 3 and then 5, c 3; d is a bound.
  const Findings found = beyond_budget(records_of(
      {row_of("a", 10.25), row_of("b", 13), row_of("b", 15), row_of("c", 13), row_of("d", 99, true)}));
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("2 of 3 policies"));
  CHECK(found[0].details ==
        std::vector<std::string>{"Up to 5 tokens per lane more: `b`.", "Up to 3 tokens per lane more: `c`."});
  CHECK(beyond_budget(records_of({row_of("a", 10)})).empty());
  CHECK(beyond_budget({}).empty());
}

TEST_CASE("Policies with the same results are named together") {
  std::vector<Row> rows;
  for (const char* policy : {"a", "b", "c"}) {
    Row row;
    row.trace = "t";
    row.policy = policy;
    row.params = row.policy + "()";
    row.set("kept_tokens", policy[0] == 'c' ? 11 : 10);
    rows.push_back(row);
  }
  const Findings found = same_results(records_of(rows));
  REQUIRE(found.size() == 1);
  CHECK(found[0].details == std::vector<std::string>{"`a` and `b`."});
  rows.pop_back();
  rows.pop_back();
  CHECK(same_results(records_of(rows)).empty());
  CHECK(same_results({}).empty());
}

TEST_CASE("Skipped cells come by reason; numbers do not make another") {
  Records skipped;
  for (const char* key : {"trace", "cut", "policy", "params", "budget", "analysis", "reason"})
    skipped.columns.push_back({key, "", ""});
  const Value none;
  skipped.rows = {{"t", none, "a", "a()", "8", none, "needs 10 tokens"},
                  {"u", none, "a", "a()", "8", none, "needs 12 tokens"},
                  {"u", none, "b", "b()", "10%", none, "needs 9 tokens"},
                  {"t", none, none, none, none, "hash", "no keys"},
                  {"v", none, none, none, none, none, "damaged\n  Copy it again."}};
  const Findings found = skipped_cells(skipped);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("5 cells"));
  CHECK(found[0].details ==
        std::vector<std::string>{"`trace v`, 1 time: damaged. Copy it again.",
                                 "`a` and `b` at 8 tokens and 10%, 3 times, for example: needs 10 tokens",
                                 "`analysis hash`, 1 time: no keys"});
  CHECK(skipped_cells({}).empty());
}

TEST_CASE("Nothing studied, nothing found; a damaged table is named") {
  const Evidence nothing = SmallStudy().evidence();
  CHECK(what_policies_do(nothing).empty());
  CHECK(what_limits({nothing}, {}, {}).empty());
  CHECK(what_cuts_do({nothing}).empty());
  SmallStudy study;
  study.mean("a", 0.1);
  study.tables.means.columns[8].key = "average";
  CHECK_THROWS_WITH(study.evidence(), Contains("no column mean") && Contains("means"));
}

TEST_CASE("Where evidence is marked it leads, and attention loss follows") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.metric = "evidence_loss";
  study.duel("b", 0.20, "a", 0.40, -0.25, -0.15, 6);
  const Findings found = what_policies_do(study.evidence());
  REQUIRE(found.size() >= 2);
  CHECK_THAT(found[0].text, Contains("Lowest evidence loss") && Contains("`b` at 10%"));
  CHECK_THAT(found[1].text, Contains("Lowest attention loss") && Contains("`a` at 10%"));
}

TEST_CASE("Peak loss does not lead, whatever the order of metrics") {
  SmallStudy study;
  study.metric = "peak_loss";
  study.duel("b", 0.10, "a", 0.15, -0.07, -0.03, 6);
  study.metric = "attention_loss";
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  CHECK(std::string(study.evidence().leading_metric()->key) == "attention_loss");
}

TEST_CASE("Numbers of one cut say nothing of another") {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  study.cut = "question";
  study.duel("b", 0.30, "a", 0.40, -0.12, -0.08, 6);
  CHECK_THAT(best_policies(study.evidence(), loss())[0].text, Contains("`b` at 10%"));
  study.cut = "prompt";
  CHECK_THAT(best_policies(study.evidence(), loss())[0].text, Contains("`a` at 10%"));
  study.cut = "7";
  CHECK(what_policies_do(study.evidence()).empty());
}

TEST_CASE("Between two cuts the order of policies turns round, changes or stays") {
  SmallStudy study;
  std::vector<Evidence> cuts;
  // Four policies. 10%: reversed, tau = -1. 25%: one of six pairs changes, tau = 4 / 6. 50%: as it was.
  const std::vector<std::vector<double>> means = {
      {0.1, 0.2, 0.3, 0.4}, {0.4, 0.3, 0.2, 0.1}, {0.1, 0.2, 0.4, 0.3}, {0.1, 0.2, 0.3, 0.4}};
  for (const char* cut : {"prompt", "question"}) {
    study.cut = cut;
    for (std::size_t b = 0; b < 3; ++b) {
      study.budget = std::vector<std::string>{"10%", "25%", "50%"}[b];
      for (std::size_t p = 0; p < 4; ++p) {
        const std::string policy(1, static_cast<char>('a' + p));
        study.mean(policy, means[study.cut == "prompt" ? 0 : b + 1][p]);
        study.rank(policy, 1);
        study.result("t", policy, b == 0 ? 10 : b == 1 ? 25 : 50, 0);
      }
    }
    cuts.push_back(study.evidence());
  }
  const Findings found = orders_between_cuts(cuts, loss());
  REQUIRE(found.size() == 1);
  CHECK_THAT(
      found[0].text,
      Equals("From cut `prompt` (question known to the policy) to cut `question` (question not known to the "
             "policy), the order of policies by attention loss turns round at 10%; changes in part at "
             "25%; stays much the same at 50% (Kendall's tau below 0; below 0.7; at least 0.7)."));
  REQUIRE(found[0].details.size() == 3);
  CHECK_THAT(found[0].details[0],
             Equals("10%: tau = \u22121 over 4 policies; best at cut `prompt` is `a`, at cut "
                    "`question` `d`.") ||
                 Equals("10%: tau = -1 over 4 policies; best at cut `prompt` is `a`, at cut "
                        "`question` `d`."));
  CHECK_THAT(found[0].details[1], Contains("tau = 0.67 "));
  CHECK(orders_between_cuts({cuts[0]}, loss()).empty());
}

TEST_CASE("What holds at every cut is said once, what does not names its cut") {
  SmallStudy study;
  std::vector<Evidence> cuts;
  for (const char* cut : {"prompt", "question"}) {
    study.cut = cut;
    study.traces = 3;
    study.mean("a", cut[0] == 'p' ? 0.05 : 0.25);
    cuts.push_back(study.evidence());
  }
  const Findings found = what_limits(cuts, study.results, {});
  const auto with = [&](const std::string& part) {
    return std::count_if(found.begin(), found.end(), [&](const Finding& finding) {
      return finding.text.find(part) != std::string::npos;
    });
  };
  CHECK(with("Only 3 traces") == 1);
  CHECK(with("Replay is open loop") == 2);
  CHECK(with("Cut question: question not known to the policy. Replay is open loop") == 1);
}

TEST_CASE("Policies that never evicted, and what stands before the context, are told once") {
  std::vector<Row> rows;
  for (const char* budget : {"10%", "50%"}) {
    for (const char* policy : {"a", "b", "full"}) {
      Row& row = rows.emplace_back();
      row.trace = "t";
      row.policy = row.params = policy;
      row.budget = budget;
      row.own_budget = row.policy == "full";
      row.set("evicted_tokens", row.policy == "b" ? 10 : 0);
      row.instruction_before = rows.size() < 3 ? 7 : 9;
    }
  }
  const Findings found = never_evicted(records_of(rows));
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].text, Contains("`a` never evicted") && !Contains("`full`"));
  CHECK(found[0].details == std::vector<std::string>{"`a` at 10% and 50%."});
  CHECK_THAT(instruction_before(records_of(rows))[0].text, Contains("7 to 9 tokens of instruction"));
  for (Row& row : rows) row.instruction_before = 0;
  CHECK(instruction_before(records_of(rows)).empty());
}

}  // namespace
}  // namespace kvsim::analysis::test_report_findings
