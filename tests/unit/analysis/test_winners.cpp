// Who is best at each budget, and what it takes to serve it.
#include <catch2/catch.hpp>
#include <sstream>

#include "analysis/cost/price_table.hpp"
#include "analysis/report/findings.hpp"
#include "analysis/report/winners.hpp"
#include "policies/builtin.hpp"
#include "sim/cost/estimate.hpp"
#include "tests/unit/analysis/small_study.hpp"

namespace kvsim::analysis::test_winners {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

/// Prices by hand: `a` reads the whole prompt and needs 3 GiB at 10 %, `b` needs 1, the full cache 2.
Records priced(bool with_machine) {
  Records out{price_columns(), {}};
  const auto add = [&](const char* policy, const Value& budget, const char* rows, std::uint64_t gib) {
    if (!with_machine) {
      out.rows.push_back(
          {std::string(policy), std::string(policy), Value(), std::string(rows), std::string("no")});
      out.rows.back().resize(price_columns().size());
      return;
    }
    for (const std::uint64_t prompt : {1000U, 4000U})
      out.rows.push_back({std::string(policy), std::string(policy), budget, std::string(rows),
                          std::string("no"), std::string("m"), std::string("gpu"), prompt, std::uint64_t{256},
                          std::string(gib > 2 && prompt > 1000 ? "no" : "yes"), (gib << 30) * prompt / 4000,
                          std::uint64_t{1} << 20, 1.5, 0.02});
  };
  add("a", std::string("10%"), "all", 3);
  add("b", std::string("10%"), "last 32", 1);
  add("full", Value(), "none", 2);
  return out;
}

SmallStudy duel() {
  SmallStudy study;
  study.duel("a", 0.10, "b", 0.15, -0.07, -0.03, 6);
  return study;
}

const policy::Composition& policy_named(const char* text) {
  static std::vector<policy::Composition> all;
  all.reserve(16);
  return all.emplace_back(policy::parse_composition(text, policy::builtin()));
}

}  // namespace

TEST_CASE("The table of winners: who, how sure, what it costs") {
  SmallStudy study = duel();
  study.budget = "25%";
  study.duel("b", 0.05, "a", 0.06, -0.03, 0.01, 4);
  const Records table = winners({study.evidence()}, PriceList(priced(true)));
  REQUIRE(table.rows.size() == 2);
  const auto field = [&](std::size_t row, const char* key) {
    return exact_field(table.rows[row][table.column(key)], "-");
  };
  CHECK(table.rows[0].size() == winners_columns().size());
  const std::pair<const char*, const char*> expected[] = {{"metric", "attention_loss"},
                                                          {"budget", "10%"},
                                                          {"policy", "a"},
                                                          {"other", "b"},
                                                          {"clear", "yes"},
                                                          {"rivals", "0"},
                                                          {"prompt_rows", "all"},
                                                          {"prompt", "4000"},
                                                          {"fits", "no"},
                                                          {"machine", "gpu"},
                                                          {"ttft_seconds", "1.5"},
                                                          {"peak_bytes", "3221225472"},
                                                          {"cache_bytes", "1048576"},
                                                          {"tpot_seconds", "0.02"},
                                                          {"other_peak_bytes", "1073741824"},
                                                          {"full_peak_bytes", "2147483648"}};
  for (const auto& [key, value] : expected) {
    INFO(key);
    CHECK(field(0, key) == value);
  }
  CHECK(number(table.rows[0][table.column("difference")]) == Approx(0.05));
  CHECK((field(1, "policy") == "b" && field(1, "clear") == "no" && field(1, "rivals") == "1"));
  CHECK(
      (field(1, "peak_bytes") == "-" && field(1, "full_peak_bytes") == "2147483648"));  // not priced at 25 %
  const SortableTable shown = winners_for_people(table);
  REQUIRE(shown.rows.size() == 2);
  CHECK_THAT(shown.caption,
             Equals("The best policy at each budget, and its price: `m` on `gpu`, one sequence with a "
                    "prompt of 4000 tokens"));
  for (const auto& row : shown.rows) CHECK(row.size() == shown.columns.size());
  std::ostringstream text;
  write_winners(text, table);
  CHECK_THAT(text.str(), Contains("The best policy at each budget, and its price: m on gpu, one sequence") &&
                             Contains(" 10.0% (9.0% to 11.0%)  b ") &&
                             Contains(" 5.0 points (3.0 to 7.0 points)  yes    all ") &&
                             Contains(" 3 GiB (does not fit)  1 MiB  1.500    20  1 GiB     2\n"));
  const SortableTable bare = winners_for_people(winners({study.evidence()}, {}));
  CHECK(bare.columns.size() + 7 == shown.columns.size());
  CHECK(winners_for_people(winners({}, {})).rows.empty());
}

TEST_CASE("A lead is positive whichever way the metric is better") {
  SmallStudy study;
  study.metric = "r";
  study.mean("a", 0.5);
  study.mean("b", 0.8);
  study.rank("a", 2);
  study.rank("b", 1);
  study.difference("a", "b", -0.3, -0.4, -0.2, 0, 6);
  const SortableTable shown = winners_for_people(winners({study.evidence()}, {}));
  REQUIRE(shown.rows.size() == 1);
  CHECK((shown.rows[0][6].shown == "30.0 points" && shown.rows[0][6].small == "20.0 to 40.0 points"));
}

TEST_CASE("The price table: what rules read, and bytes and seconds of the cost model") {
  const std::vector<policy::Composition> policies{policy_named("h2o"), policy_named("snapkv"),
                                                  policy_named("keydiff"), policy_named("full")};
  const std::vector<sim::Budget> budgets = sim::parse_budgets("10%,512");
  const Records needs = price_records(policies, budgets, {});
  REQUIRE(needs.rows.size() == 4);
  const auto column = [&](const char* key) { return needs.column(key); };
  const char* rows[] = {"all", "last 32", "none", "none"};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(text(needs.rows[i][column("prompt_rows")]) == rows[i]);
    CHECK(needs.rows[i][column("machine")] == Value());
    CHECK(needs.rows[i].size() == price_columns().size());
  }
  CHECK(text(needs.rows[0][column("decode_rows")]) == "yes");
  PriceQuestion question{cost::find_model("llama-3.1-8b"), cost::find_machine("a100-80-sxm"), {2000, 131072}};
  const Records table = price_records(policies, budgets, question);
  CHECK(table.rows.size() == 2 * (2 * 3 + 1));  // the full cache once per prompt
  for (const std::vector<Value>& row : table.rows) {
    if (text(row[column("policy")]) != "h2o" || row[column("prompt")] != Value(std::uint64_t{131072}) ||
        text(row[column("budget")]) != "10%")
      continue;
    cost::Serving serving;
    serving.prompt = 131072;
    serving.generate = 256;
    serving.batch = 1;
    const cost::Estimate direct =
        cost::estimate(question.model, question.machine, serving, policies[0], 13107);
    CHECK(row[column("peak_bytes")] == Value(direct.peak()));
    CHECK(row[column("ttft_seconds")] == Value(direct.time.first_token));
    CHECK(text(row[column("fits")]) == "no");
  }
}

TEST_CASE("Prompts that are priced unasked: the longest studied, and the longest that the model takes") {
  cost::Model model;
  CHECK(usual_prompts(1000, model) == std::vector<std::uint64_t>{1000, 131072});
  model.max_context = 8192;
  CHECK(usual_prompts(1000, model) == std::vector<std::uint64_t>{1000, 8192});
  CHECK(usual_prompts(9000, model) == std::vector<std::uint64_t>{8192});
  CHECK(usual_prompts(0, model) == std::vector<std::uint64_t>{8192});
}

}  // namespace kvsim::analysis::test_winners
