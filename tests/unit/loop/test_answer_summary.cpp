// Means over items, their intervals, and when policies are ranked.
#include <catch2/catch.hpp>

#include "analysis/loop/answer_rows.hpp"

namespace kvsim::analysis::test_answer_summary {
namespace {

/// Rows as a closed loop makes them, of which only some columns matter.
struct MadeRows {
  Records rows{answer_columns(), {}};
  std::string workload = "keys", cut = "question", budget = "10%";

  void add(const std::string& policy, const std::string& item, const char* mode,
           const std::vector<std::pair<const char*, Value>>& numbers) {
    std::vector<Value>& row = rows.rows.emplace_back(rows.columns.size());
    const auto set = [&](const char* key, const Value& value) { row[rows.column(key)] = value; };
    set("item", item);
    set("workload", workload);
    set("policy", policy);
    set("params", policy + "()");
    set("budget", budget);
    set("cut", cut);
    set("turn", std::uint64_t{0});
    set("mode", std::string(mode));
    set("skipped", std::string());
    for (const auto& [key, value] : numbers) set(key, value);
  }
  /// A policy's answers, one per item: whether each is right, the same of the full cache, and their KL.
  void policy(const std::string& name, const std::vector<int>& right, const std::vector<int>& full,
              double kl) {
    for (std::size_t i = 0; i < right.size(); ++i) {
      const std::string item = "item " + std::to_string(i);
      add(name, item, "teacher", {{"kl", kl}});
      const Value kept = full[i] == 1 ? Value(std::uint64_t(right[i])) : Value();
      add(name, item, "greedy",
          {{"right", std::uint64_t(right[i])}, {"right_full", std::uint64_t(full[i])}, {"kept", kept}});
    }
  }
};

std::vector<std::string> policies(const Records& summary) {
  std::vector<std::string> out;
  for (const auto& row : summary.rows) out.push_back(text(row[summary.column("policy")]));
  return out;
}

std::optional<double> at(const Records& summary, std::size_t row, const char* key) {
  return number(summary.rows.at(row)[summary.column(key)]);
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("policies are in order of their answers, then of their KL, at each cut and budget") {
  MadeRows made;
  for (const char* budget : {"10%", "50%"}) {
    made.budget = budget;
    made.policy("far", {1, 0, 0, 0}, {1, 1, 1, 1}, 3);
    made.policy("near", {1, 0, 0, 0}, {1, 1, 1, 1}, 2);
    made.policy(std::string(budget) == "10%" ? "best" : "none",
                std::string(budget) == "10%" ? std::vector{1, 1, 0, 1} : std::vector{0, 0, 0, 0},
                {1, 1, 1, 1}, 1);
  }
  const Records summary = answer_summary(made.rows);
  CHECK(policies(summary) == Names{"best", "near", "far", "near", "far", "none"});
  CHECK(at(summary, 0, "right") == 0.75);
  CHECK(at(summary, 0, "items") == 4);
  CHECK(at(summary, 0, "kl") == 1);
  CHECK(unranked_notes(made.rows).empty());
}

TEST_CASE("a mean over fewer prompts than others says which it lacks") {
  MadeRows made;
  made.policy("all", {1, 0, 1}, {1, 1, 1}, 1);
  made.policy("some", {1, 0}, {1, 1}, 1);
  const Records summary = answer_summary(made.rows);
  const std::size_t without = summary.column("without");
  for (const auto& row : summary.rows) {
    const bool some = text(row[summary.column("policy")]) == "some";
    CHECK(row[summary.column("items")] == Value(std::uint64_t{some ? 2U : 3U}));
    CHECK(row[without] == (some ? Value(std::string("item 2")) : Value()));
  }
}

TEST_CASE("a workload that the full cache does not answer is not ranked") {
  MadeRows made;
  made.policy("none", {0, 0, 0, 0}, {1, 1, 0, 1}, 2);
  made.policy("all", {1, 1, 1, 1}, {1, 1, 0, 1}, 1);
  made.workload = "known";
  made.policy("none", {0, 0}, {1, 1}, 2);
  made.policy("all", {1, 1}, {1, 1}, 1);
  CHECK(policies(answer_summary(made.rows)) == Names{"none", "all", "all", "none"});
  const std::vector<std::string> notes = unranked_notes(made.rows);
  REQUIRE(notes.size() == 2);
  CHECK(notes[0] ==
        "workload keys, cut question: the full cache answers 3 of 4 (75 %): policies are not ranked");
  CHECK_THAT(notes[1], Catch::Contains("Below 90 %") && Catch::Contains("Chance level not known"));

  // Three of four are three quarters.
  CHECK(policies(answer_summary(made.rows, 0.75)) == Names{"all", "none", "all", "none"});
  CHECK(unranked_notes(made.rows, 0.75).empty());
}

TEST_CASE("kept is right among what the full cache answers, with the interval of those alone") {
  MadeRows made;
  // The full cache answers the first, second and fourth; of them one is right. The third is right by luck.
  made.policy("some", {1, 0, 1, 0}, {1, 1, 0, 1}, 2);
  const Records summary = answer_summary(made.rows);
  CHECK(at(summary, 0, "right") == 0.5);
  CHECK(at(summary, 0, "right_full") == 0.75);
  CHECK(at(summary, 0, "kept") == Approx(1.0 / 3));
  // Of three draws of one in three, none with probability 8/27, and all with 1/27: more than 2.5 % each.
  CHECK(at(summary, 0, "kept_low") == 0);
  CHECK(at(summary, 0, "kept_high") == 1);
}

TEST_CASE("where the full cache answers too little, kept ranks from a hundred answered prompts on") {
  // `lucky` answers what the full cache does not, `keeper` half of what it does: right prefers the first.
  const auto made_of = [](std::size_t answered) {
    std::vector<int> full(2 * answered, 0), lucky(2 * answered, 1), keeper(2 * answered, 0);
    for (std::size_t i = 0; i < answered; ++i) {
      full[i] = 1;
      lucky[i] = i % 4 == 0;
      keeper[i] = i % 2 == 0;
    }
    MadeRows made;
    made.policy("lucky", lucky, full, 1);
    made.policy("keeper", keeper, full, 2);
    return made;
  };
  const MadeRows enough = made_of(kLeastAnswered), few = made_of(kLeastAnswered - 1);
  CHECK(policies(answer_summary(enough.rows)) == Names{"keeper", "lucky"});
  CHECK(at(answer_summary(enough.rows), 0, "kept") == 0.5);
  CHECK_THAT(unranked_notes(enough.rows).at(0),
             Catch::Contains("the full cache answers 100 of 200 (50 %)") && Catch::Contains("order of kept"));
  CHECK(policies(answer_summary(few.rows)) == Names{"lucky", "keeper"});
  CHECK_THAT(unranked_notes(few.rows).at(0), Catch::EndsWith("policies are not ranked"));
}

TEST_CASE("each cut is ranked by itself") {
  MadeRows made;
  made.policy("none", {0}, {0}, 2);
  made.policy("all", {1}, {0}, 1);
  made.cut = "prompt";
  made.policy("none", {0}, {1}, 2);
  made.policy("all", {1}, {1}, 1);
  CHECK(policies(answer_summary(made.rows)) == Names{"none", "all", "all", "none"});
  CHECK(unranked_notes(made.rows).size() == 2);
}

TEST_CASE("where no answer is judged, the KL orders") {
  MadeRows made;
  made.add("far", "item", "teacher", {{"kl", 2.0}});
  made.add("near", "item", "teacher", {{"kl", 1.0}});
  const Records summary = answer_summary(made.rows);
  CHECK(policies(summary) == Names{"near", "far"});
  CHECK_FALSE(at(summary, 0, "right"));
  CHECK_FALSE(at(summary, 0, "right_low"));
  CHECK(unranked_notes(made.rows).empty());
}

TEST_CASE("intervals are those of a mean over items drawn anew") {
  MadeRows made;
  // One of four is right: a resample has k of them with probability Binomial(4, 1/4), and 97.5 % have k <= 3.
  made.policy("some", {0, 0, 1, 0}, {1, 1, 1, 1}, 1.5);
  const Records summary = answer_summary(made.rows);
  CHECK(at(summary, 0, "right_low") == 0);
  CHECK(at(summary, 0, "right_high") == 0.75);
  CHECK(at(summary, 0, "kl_low") == 1.5);
  CHECK(at(summary, 0, "kl_high") == 1.5);
}

TEST_CASE("turns of one item are one draw, and a single item has no interval") {
  MadeRows made;
  for (const int right : {0, 1, 1, 1}) made.add("some", "item", "greedy", {{"right", std::uint64_t(right)}});
  Records summary = answer_summary(made.rows);
  CHECK(at(summary, 0, "items") == 1);
  CHECK(at(summary, 0, "right") == 0.75);
  CHECK_FALSE(at(summary, 0, "right_low"));

  // The mean is over items: (0.75 + 0) / 2.
  made.add("some", "other", "greedy", {{"right", std::uint64_t{0}}});
  summary = answer_summary(made.rows);
  CHECK(at(summary, 0, "right") == 0.375);
  CHECK(at(summary, 0, "right_low") == 0);
  CHECK(at(summary, 0, "right_high") == 0.75);
}

TEST_CASE("cells that were skipped have no row") {
  MadeRows made;
  made.add("some", "item", "teacher", {{"kl", 1.0}});
  made.add("optimal", "item", "teacher", {{"skipped", std::string("knows the future")}});
  CHECK(policies(answer_summary(made.rows)) == Names{"some"});
}

}  // namespace kvsim::analysis::test_answer_summary
