#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/report/findings.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/analysis/small_study.hpp"

namespace kvsim::analysis::test_report_findings {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

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

TEST_CASE(
    "Who holds over a quarter more than its budget is ranked apart, at that budget, by the mean of its "
    "rows") {
  SmallStudy study;
  study.duel("a", 0.05, "b", 0.2, -0.2, -0.1, 6);
  study.budget = "25%";
  study.duel("a", 0.05, "b", 0.2, -0.2, -0.1, 6);
  const auto first_with = [&](std::uint64_t held, const std::string& cut) {
    // Of another prompt it holds just the budget: 150 and 100 of 100 are 1.25 of it.
    const Records answers{
        {{"cut"}, {"params"}, {"budget"}, {"budget_tokens"}, {"kept_tokens"}},
        {{cut, std::string("a"), std::string("10%"), std::uint64_t{100}, held},
         {cut, std::string("a"), std::string("10%"), std::uint64_t{100}, std::uint64_t{100}},
         {cut, std::string("a"), std::string("25%"), std::uint64_t{250}, std::uint64_t{250}},
         {cut, std::string("b"), std::string("10%"), Value(), Value()}}};
    const Evidence evidence(study.cut, study.tables.means, study.tables.differences, study.tables.ranks,
                            study.results, answers);
    CHECK(contest(evidence, {study.metric, "all", "25%"}, metric(study.metric)).size() == 2);
    return contest(evidence, {study.metric, "all", "10%"}, metric(study.metric)).front().policy;
  };
  CHECK(first_with(150, "prompt") == "a");
  CHECK(first_with(151, "prompt") == "b");
  CHECK(first_with(500, "question") == "a");
}

TEST_CASE("Policies with the same results are named together") {
  std::vector<Row> rows;
  for (const char* policy : {"a", "b", "c"}) {
    Row row;
    row.trace = "t";
    row.policy = policy;
    row.params = row.policy + "()";
    row.set("kept_tokens", policy[0] == 'c' ? 11.0 : 10.0);
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
  CHECK(what_limits({nothing}, {}, {}).empty());
  SmallStudy study;
  study.mean("a", 0.1);
  study.tables.means.columns[8].key = "average";
  CHECK_THROWS_WITH(study.evidence(), Contains("no column mean") && Contains("means"));
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
      row.set("evicted_tokens", row.policy == "b" ? 10.0 : 0.0);
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
