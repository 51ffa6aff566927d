// Rows of both loops joined, and what their orders of policies share: worked by hand, and beside a slow
// reference.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

#include "analysis/agreement/loop_agreement.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_loop_agreement {

namespace {

/// Rows of both loops, a line per call. Policies are called by one letter, which is their params too.
struct BothLoops {
  std::string cut = "question", budget = "10%", model = "m", workload = "needle", turns = "requests";
  Records open{{{"trace"},
                {"policy"},
                {"params"},
                {"budget"},
                {"cut"},
                {"scope"},
                {"seed"},
                {"role"},
                {"attention_loss"},
                {"r"}},
               {}};
  Records closed{{{"item"},
                  {"workload"},
                  {"model"},
                  {"policy"},
                  {"params"},
                  {"budget"},
                  {"cut"},
                  {"turn"},
                  {"seed"},
                  {"mode"},
                  {"turns"},
                  {"prefill"},
                  {"positions"},
                  {"right"},
                  {"right_full"},
                  {"kl"},
                  {"skipped"}},
                 {}};

  void replayed(const std::string& trace, const std::string& policy, double loss, double r = 0,
                std::uint64_t seed = 0, const std::string& role = "policy") {
    open.rows.push_back({trace, policy, policy, budget, cut, "all", seed, role, loss, r});
  }
  void answered(const std::string& item, const std::string& policy, std::uint64_t right, double kl = 0,
                std::uint64_t right_full = 1, std::uint64_t seed = 0) {
    row(item, policy, "teacher", Value(), Value(), kl, seed, "");
    row(item, policy, "greedy", right, right_full, Value(), seed, "");
  }
  void row(const std::string& item, const std::string& policy, const std::string& mode, Value right,
           Value right_full, Value kl, std::uint64_t seed, const std::string& skipped,
           std::uint64_t turn = 0) {
    closed.rows.push_back({item, workload, model, policy, policy, budget, cut, turn, seed, mode, turns,
                           "dense", "text", right, right_full, kl,
                           skipped.empty() ? Value() : Value(skipped)});
  }

  JoinedLoops joined() const {
    std::vector<const ClosedMeasure*> all;
    for (const ClosedMeasure& each : closed_measures()) all.push_back(&each);
    return join_loops({open, closed}, {&open_measure("attention_loss"), &open_measure("r")}, all);
  }
  LoopAgreement agreement(AgreementOptions options = {}) const {
    if (options.closed.size() == 4) options.closed = {"right"};
    options.resamples = 200;
    return loop_agreement(joined(), options);
  }
};

/// A field of the row that has the given texts, whatever their columns.
Value field(const Records& table, const std::vector<std::string>& texts, const char* key) {
  const std::vector<Value>* found = nullptr;
  for (const std::vector<Value>& row : table.rows) {
    const bool all = std::all_of(texts.begin(), texts.end(), [&](const std::string& wanted) {
      return std::find(row.begin(), row.end(), Value(wanted)) != row.end();
    });
    if (!all) continue;
    REQUIRE(found == nullptr);
    found = &row;
  }
  REQUIRE(found != nullptr);
  return (*found)[table.column(key)];
}

bool some_note(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

std::string message_of(const BothLoops& loops) {
  try {
    loops.joined();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Tau-b as Kendall (1945) writes it: concordant pairs less discordant ones, over the geometric mean of the
/// pairs that are not tied in either, which are counted by groups of equal values.
std::optional<double> slow_tau(const std::vector<double>& a, const std::vector<double>& b) {
  const auto pairs = [](double n) { return n * (n - 1) / 2; };
  const auto untied = [&](const std::vector<double>& values) {
    std::map<double, double> sizes;
    for (const double value : values) sizes[value] += 1;
    double out = pairs(static_cast<double>(values.size()));
    for (const auto& [value, size] : sizes) out -= pairs(size);
    return out;
  };
  double concordant = 0, discordant = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a.size(); ++j) {
      if (a[i] < a[j] && b[i] < b[j]) concordant += 1;
      if (a[i] < a[j] && b[i] > b[j]) discordant += 1;
    }
  const double scale = std::sqrt(untied(a)) * std::sqrt(untied(b));
  if (scale == 0) return {};
  return (concordant - discordant) / scale;
}

}  // namespace

TEST_CASE("tau-b with ties, by hand and beside its definition") {
  // A(1,1) B(2,1) C(2,2) D(3,3): AC AD BD CD are concordant, AB is tied in b, BC in a: 4 / sqrt(5 * 5).
  CHECK(*kendall_tau(std::vector<double>{1, 2, 2, 3}, std::vector<double>{1, 1, 2, 3}) == Approx(0.8));
  CHECK(*slow_tau({1, 2, 2, 3}, {1, 1, 2, 3}) == Approx(0.8));
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::uniform_int_distribution<int> size(0, 12), value(0, round % 9);
    std::vector<double> a(static_cast<std::size_t>(size(random))), b(a.size());
    for (double& each : a) each = value(random);
    for (double& each : b) each = value(random);
    const auto fast = kendall_tau(a, b), slow = slow_tau(a, b);
    REQUIRE(fast.has_value() == slow.has_value());
    if (fast) CHECK(*fast == Approx(*slow).margin(1e-12));
  }
}

TEST_CASE("orders of three policies by both loops, worked by hand") {
  BothLoops loops;
  for (const char* item : {"a", "b", "c", "d"}) {
    loops.replayed(std::string("runs/") + item + ".h5", "A", 0.1);
    loops.replayed(std::string("runs/") + item + ".h5", "B", 0.1);
    loops.replayed(std::string("runs/") + item + ".h5", "C", 0.5);
    loops.answered(item, "A", 1);
    loops.answered(item, "B", 0);
    loops.answered(item, "C", 0);
  }
  const LoopAgreement found = loops.agreement();
  const auto is = [&](const char* key, double value) {
    CHECK(number(field(found.agreement, {"attention_loss"}, key)) == Approx(value));
  };
  // AB is tied in the loss, BC in answers, AC is concordant: 1 / sqrt(2 * 2).
  is("tau", 0.5);
  is("tau_low", 0.5);
  is("tau_high", 0.5);
  // The answers tell AB and AC apart; the loss agrees on AC and has no opinion on AB.
  is("pairs", 2);
  is("signs", 0.75);
  is("policies", 3);
  is("items", 4);
  // To `r` all policies are equal: it has no order, and agrees with any as a coin does.
  CHECK_FALSE(number(field(found.agreement, {"r"}, "tau")));
  CHECK(number(field(found.agreement, {"r"}, "signs")) == Approx(0.5));
  CHECK(text(field(found.agreement, {"r"}, "workload")) == "needle");
}

TEST_CASE("answers that are all alike order nothing") {
  BothLoops loops;
  for (const char* item : {"a", "b"}) {
    loops.replayed(item, "A", 0.1, 0.2);
    loops.replayed(item, "B", 0.3, 0.4);
    loops.answered(item, "A", 1);
    loops.answered(item, "B", 1);
  }
  const LoopAgreement found = loops.agreement();
  CHECK_FALSE(number(field(found.agreement, {"attention_loss"}, "tau")));
  CHECK_FALSE(number(field(found.agreement, {"attention_loss"}, "signs")));
  CHECK(number(field(found.agreement, {"attention_loss"}, "pairs")) == 0);
  CHECK(found.choices.rows.empty());
}

TEST_CASE("intervals are those of a bootstrap over items, drawn alike for both loops") {
  BothLoops loops;
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<std::vector<double>> losses(4), kls(4);
  std::vector<std::vector<Value>> rows;
  for (int item = 0; item < 9; ++item) {
    for (std::size_t policy = 0; policy < 4; ++policy) {
      losses[policy].push_back(uniform(random) + 0.1 * static_cast<double>(policy));
      kls[policy].push_back(uniform(random) + 0.2 * static_cast<double>(policy));
      const std::string name(1, static_cast<char>('A' + policy));
      loops.replayed("item" + std::to_string(item) + ".h5", name, losses[policy].back());
      loops.answered("item" + std::to_string(item), name, 1, kls[policy].back());
    }
  }
  const LoopAgreement found = loops.agreement({.closed = {"kl"}});
  Resamples resamples(std::vector<std::string>(9, "needle"), 200, 0);
  const TraceSet all(9, true);
  std::vector<std::vector<double>> loss_means, kl_means;
  for (std::size_t policy = 0; policy < 4; ++policy) {
    loss_means.push_back(resamples.means(all, losses[policy]));
    kl_means.push_back(resamples.means(all, kls[policy]));
  }
  std::vector<double> taus;
  for (std::size_t r = 0; r < 200; ++r) {
    std::vector<double> a, b;
    for (std::size_t policy = 0; policy < 4; ++policy) {
      a.push_back(loss_means[policy][r]);
      b.push_back(kl_means[policy][r]);
    }
    taus.push_back(*slow_tau(a, b));
  }
  const Interval interval = percentile_interval(taus, 0.95);
  CHECK(number(field(found.agreement, {"attention_loss"}, "tau_low")) == Approx(interval.low));
  CHECK(number(field(found.agreement, {"attention_loss"}, "tau_high")) == Approx(interval.high));
  CHECK(interval.low < interval.high);

  // Neither the order of rows nor of tables changes a number.
  BothLoops shuffled = loops;
  std::shuffle(shuffled.open.rows.begin(), shuffled.open.rows.end(), random);
  std::stable_sort(shuffled.closed.rows.begin(), shuffled.closed.rows.end(),
                   [](const auto& a, const auto& b) { return text(a[9]) < text(b[9]); });
  CHECK(csv_text(shuffled.agreement({.closed = {"kl"}}).agreement) == csv_text(found.agreement));
}

TEST_CASE("what one half of the items chooses is reported on the other half") {
  BothLoops loops;
  // On a and c the loss orders as the answers do, on b and d retention does.
  for (const char* item : {"a", "b", "c", "d"}) {
    const bool chooses = *item == 'a' || *item == 'c';
    for (const auto& [policy, better] : std::map<std::string, double>{{"A", 1}, {"B", 0}}) {
      loops.replayed(item, policy, chooses ? 1 - better : better, chooses ? 1 - better : better);
      loops.answered(item, policy, better == 1 ? 1 : 0);
    }
  }
  const LoopAgreement found = loops.agreement();
  REQUIRE(found.choices.rows.size() == 1);
  const auto of = [&](const char* key) { return field(found.choices, {"right"}, key); };
  CHECK(text(of("open")) == "attention_loss");
  CHECK(number(of("tau_chosen")) == 1);
  CHECK(number(of("tau")) == -1);
  CHECK(text(of("best")) == "r");
  CHECK(number(of("best_tau")) == 1);
  CHECK(number(of("items")) == 2);
}

TEST_CASE("a threshold that one half chooses, counted on the other, worked by hand") {
  BothLoops loops;
  // Losses 0.1 to 0.5; on the half that chooses A, B and D keep their accuracy, on the other A alone.
  for (const char* item : {"a", "b", "c", "d"}) {
    const bool chooses = *item == 'a' || *item == 'c';
    double loss = 0;
    for (const char* policy : {"A", "B", "C", "D", "E"}) {
      loops.replayed(item, policy, loss += 0.125, 1);
      const bool right = *policy == 'A' || (chooses && (*policy == 'B' || *policy == 'D'));
      loops.answered(item, policy, right ? 1 : 0);
    }
  }
  const auto of = [](const LoopAgreement& found, const char* key) {
    return number(field(found.thresholds, {"attention_loss"}, key));
  };
  const LoopAgreement strict = loops.agreement();
  CHECK(of(strict, "threshold") == 0.25);  // A and B
  CHECK(of(strict, "chosen_within") == 2);
  CHECK(of(strict, "within") == 2);
  CHECK(of(strict, "within_kept") == 1);
  CHECK(of(strict, "beyond") == 3);
  CHECK(of(strict, "beyond_kept") == 0);
  const LoopAgreement lax = loops.agreement({.trusted = 0.75});
  CHECK(of(lax, "threshold") == 0.5);  // three of A to D
  CHECK(of(lax, "within") == 4);
  // Retention cannot tell them apart: three of five are too few.
  CHECK_FALSE(number(field(strict.thresholds, {"r"}, "threshold")));
  CHECK(number(field(strict.thresholds, {"r"}, "beyond")) == 5);
}

TEST_CASE("a workload that the full cache does not answer is not ranked") {
  BothLoops loops;
  for (const char* item : {"a", "b"}) {
    for (const char* policy : {"A", "B"}) {
      loops.replayed(item, policy, *policy == 'A' ? 0.1 : 0.2);
      loops.answered(item, policy, *policy == 'A' ? 1 : 0, 0, *item == 'a' ? 1 : 0);
    }
  }
  const LoopAgreement found = loops.agreement();
  CHECK(found.agreement.rows.empty());
  CHECK(found.choices.rows.empty());
  CHECK(found.thresholds.rows.empty());
  CHECK(
      some_note(found.notes,
                "needle, cut question: not ranked, as the full cache answers 50 % of the items, below 90 %"));
  CHECK_FALSE(loops.agreement({.least_full = 0.5}).agreement.rows.empty());

  BothLoops unknown = loops;
  std::erase_if(unknown.closed.rows, [](const auto& row) { return text(row[9]) == "greedy"; });
  CHECK(some_note(unknown.agreement({.closed = {"kl"}}).notes, "not known whether the full cache answers"));
  CHECK_FALSE(unknown.agreement({.closed = {"kl"}, .least_full = 0}).agreement.rows.empty());
}

TEST_CASE("rows that do not join are counted, and named") {
  BothLoops loops;
  loops.turns = "golden";
  for (const char* item : {"a", "b"}) {
    for (const char* policy : {"A", "B", "C"}) {
      loops.replayed(item, policy, 0.1);
      loops.answered(item, policy, 1);
    }
    loops.replayed(item, "optimal", 0, 0, 0, "oracle");
    loops.replayed(item, "full", 0, 0, 0, "own_budget");
    loops.answered(item, "full", 1);
    loops.answered(item, "F", 1);
    loops.answered(item, "C", 1, 0, 1, 7);
    loops.row(item, "A", "greedy", Value(), Value(), Value(), 0, "", 1);
  }
  loops.replayed("z", "A", 0.1);
  loops.cut = "prompt";
  loops.answered("a", "A", 1);
  const JoinedLoops joined = loops.joined();
  REQUIRE(joined.cuts.size() == 1);
  CHECK(joined.cuts[0].items.size() == 2);
  CHECK(some_note(joined.notes, "no running model serves them: optimal."));
  CHECK(some_note(joined.notes, "whatever the budget: full."));
  CHECK(some_note(joined.notes, "Not joined: 2 rows of later turns"));
  CHECK(some_note(joined.notes, "Not joined: 1 cell only replayed, of item z."));
  CHECK(some_note(joined.notes, "Not joined: 2 cells only answered, of policy F."));
  CHECK(some_note(joined.notes, "Not joined: 2 cells only answered, of seed 7."));
  CHECK(some_note(joined.notes, "Not joined: 1 cell only answered, of cut prompt."));
  CHECK(joined.notes.size() == 7);
}

TEST_CASE("a policy that some item did without is not compared") {
  BothLoops loops;
  for (const char* item : {"a", "b"}) {
    for (const char* policy : {"A", "B", "C"}) {
      loops.replayed(item, policy, 0.1);
      if (*policy == 'C' && *item == 'b')
        loops.row(item, policy, "greedy", Value(), std::uint64_t{1}, Value(), 0, "keeps 32 tokens");
      else
        loops.answered(item, policy, *policy == 'A' ? 1 : 0);
    }
  }
  const LoopAgreement found = loops.agreement();
  CHECK(number(field(found.agreement, {"r"}, "policies")) == 2);
  CHECK(number(field(found.agreement, {"r"}, "items")) == 2);
  CHECK(some_note(found.notes, "Not compared at 10%, where some item has no answer through them: C."));
}

TEST_CASE("values are means over the seeds of both loops") {
  BothLoops loops;
  loops.replayed("a", "A", 0.25, 0, 0);
  loops.replayed("a", "A", 0.75, 0, 1);
  loops.answered("a", "A", 1, 0.5, 1, 0);
  loops.answered("a", "A", 0, 1.5, 1, 1);
  const JoinedLoops joined = loops.joined();
  CHECK(joined.cuts.at(0).of_open(0, 0, 0)[0] == 0.5);
  CHECK(joined.cuts.at(0).of_closed(0, 0, 0)[0] == 0.5);
  CHECK(joined.cuts.at(0).of_closed(1, 0, 0)[0] == 1);
}

TEST_CASE("rows that cannot be joined are refused") {
  BothLoops loops;
  loops.replayed("run-1.h5", "A", 0.1);
  loops.answered("a", "A", 1);
  CHECK(message_of(loops).find("replayed were run-1; answered were a") != std::string::npos);
  loops.replayed("a.h5", "B", 0.1);
  CHECK(message_of(loops).find("no cell of a is in both loops") != std::string::npos);
  loops.replayed("a.h5", "A", 0.1);
  CHECK(message_of(loops).empty());
  BothLoops twice = loops;
  twice.replayed("elsewhere/a.h5", "A", 0.2);
  CHECK(message_of(twice).find("a: a replay has two rows of A at 10%, cut question, seed 0") == 0);
  BothLoops models = loops;
  models.model = "n";
  models.answered("b", "A", 1);
  CHECK(message_of(models).find("column model: answers of several: m, n") == 0);
  BothLoops one = loops;
  one.open.rows.clear();
  CHECK(message_of(one).find("FILE: no rows of a replay") == 0);
  one = loops;
  one.closed.rows.clear();
  CHECK(message_of(one).find("FILE: no rows of a model that answers") == 0);

  CHECK_THROWS_WITH(open_measure("atention_loss"), Catch::Contains("atention_loss"));
  CHECK_THROWS_WITH(closed_measure("wrong"), Catch::Contains("wrong"));
  CHECK_THROWS_AS(loops.agreement({.kept = 2}), Error);
}

}  // namespace kvsim::analysis::test_loop_agreement
