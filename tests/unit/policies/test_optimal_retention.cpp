#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "policies/parts/oracles/optimal_retention.hpp"
#include "policies/parts/oracles/planned_oracle.hpp"
#include "sim/base/error.hpp"
#include "tests/support/decoding_rows.hpp"
#include "tests/support/exhaustive_retention.hpp"
#include "tests/support/retained_attention.hpp"
#include "tests/support/textbook_retention.hpp"

namespace kvsim::policy::test_optimal_retention {

using kvsim::test::Decoding, kvsim::test::lifelike_rows, kvsim::test::random_rows, kvsim::test::rows,
    kvsim::test::retained_attention;
using Positions = std::vector<Position>;

namespace {

/// Runs the plan by the contract of an Eviction, one arrival at a time, and adds up the attended mass.
double replayed(const Decoding& run, std::size_t budget, const RetentionPlan& plan) {
  REQUIRE(plan.until.size() == run.n_tokens());
  REQUIRE(plan.kept.size() == std::min(budget, run.prompt));
  REQUIRE(std::is_sorted(plan.kept.begin(), plan.kept.end()));
  std::set<Position> held(plan.kept.begin(), plan.kept.end());
  REQUIRE(held.size() == plan.kept.size());
  if (!held.empty()) REQUIRE((*held.begin() >= 0 && *held.rbegin() < static_cast<Position>(run.prompt)));
  double mass = 0;
  for (std::size_t s = 0; s < run.n_steps; ++s) {
    const auto own = static_cast<Position>(run.first() + s);
    const bool joins = run.first() + s >= run.prompt;
    if (joins && held.size() == budget) {
      Positions leaving;
      for (const Position j : held)
        if (plan.until[j] == s) leaving.push_back(j);
      REQUIRE(leaving.size() == 1);
      held.erase(leaving.front());
    }
    if (joins) held.insert(own);
    REQUIRE(held.size() <= budget);
    for (const Position j : held) {
      REQUIRE(plan.until[j] > s);
      mass += static_cast<double>(run.at(s, j));
    }
    if (!held.contains(own)) mass += static_cast<double>(run.at(s, own));
  }
  return mass;
}

struct Solved : RetentionPlan {
  double retained = 0;
};

Solved optimum(const Decoding& run, std::size_t budget) {
  const MassAhead future(run.view(), run.prompt);
  const RetentionPlan plan = OptimalRetention(future).plan(future, budget);
  return {plan, retained_attention(run.view(), plan)};
}

std::vector<double> losses_of(const Decoding& run) {
  return OptimalRetention(MassAhead(run.view(), run.prompt)).losses();
}

Solved greedy(const Decoding& run, std::size_t budget, std::size_t horizon = kWholeFuture) {
  const RetentionPlan plan = future_greedy(MassAhead(run.view(), run.prompt, horizon), budget);
  return {plan, retained_attention(run.view(), plan)};
}

/// Returns the attention of reading the `budget` best keys of every step, without any eviction, and the own
/// key of a last prompt row.
double best_of_every_step(const Decoding& run, std::size_t budget) {
  double mass = 0;
  for (std::size_t s = 0; s < run.n_steps; ++s) {
    if (run.first() + s < run.prompt) mass += static_cast<double>(run.at(s, run.first() + s));
    std::vector<float> row(run.attention.begin() + static_cast<std::ptrdiff_t>(s * run.n_tokens()),
                           run.attention.begin() + static_cast<std::ptrdiff_t>((s + 1) * run.n_tokens()));
    std::sort(row.begin(), row.end(), std::greater<>());
    for (std::size_t i = 0; i < std::min(budget, row.size()); ++i) mass += static_cast<double>(row[i]);
  }
  return mass;
}

/// Greedy by its definition: a resident's future is summed again at each eviction.
RetentionPlan slow_greedy(const Decoding& run, std::size_t budget, std::size_t horizon) {
  RetentionPlan plan;
  plan.until.assign(run.n_tokens(), static_cast<std::uint32_t>(run.n_steps));
  std::set<Position> held;
  for (std::size_t j = 0; j < run.prompt; ++j) held.insert(static_cast<Position>(j));
  const auto drop_least = [&](std::size_t s) {
    const auto ahead = [&](Position j) {
      double sum = 0;
      for (std::size_t later = s; later < run.n_steps && later - s < horizon; ++later)
        if (run.first() + later != static_cast<std::size_t>(j)) sum += static_cast<double>(run.at(later, j));
      return sum;
    };
    const Position least = *std::min_element(held.begin(), held.end(), [&](Position a, Position b) {
      return ahead(a) != ahead(b) ? ahead(a) < ahead(b) : a < b;
    });
    held.erase(least);
    plan.until[least] = static_cast<std::uint32_t>(s);
  };
  while (held.size() > budget) drop_least(0);
  plan.kept.assign(held.begin(), held.end());
  for (std::size_t s = 0; s < run.n_steps; ++s) {
    if (run.first() + s < run.prompt) continue;
    if (held.size() == budget) drop_least(s);
    held.insert(static_cast<Position>(run.first() + s));
  }
  return plan;
}

}  // namespace

TEST_CASE("the loss of greedy eviction, worked by hand") {
  // Two slots, prompt {0, 1}, three steps; a step's own token takes one slot, so one other can be attended.
  //            0  1  2  3  4
  // step 0     6  0  1
  // step 1     0  0  5  1
  // step 2     0  7  0  0  1
  // Future mass at step 0: token 0 has 6, token 1 has 7, so greedy drops 0 and attends 1 (0). At step 1 token
  // 1 still has 7 against the 5 of token 2: 2 is evicted. Step 2 attends 1: greedy gets 7, and 3 for the own
  // tokens. Better: attend 0 at step 0 (6), token 2 at step 1 (5) and no old token at step 2: 11, and 3.
  // Evicting token 1 first gives up the largest single future, which pays only at the end and occupies the
  // slot until then.
  const Decoding run = rows(2, 3, {{6, 0, 1}, {0, 0, 5, 1}, {0, 7, 0, 0, 1}});
  const Solved best = optimum(run, 2);
  CHECK(best.retained * 1024 == 14);
  CHECK(best.kept == Positions{0, 1});
  CHECK(best.until == std::vector<std::uint32_t>{1, 0, 2, 3, 3});
  const Solved in_hindsight = greedy(run, 2);
  CHECK(in_hindsight.retained * 1024 == 10);
  CHECK(in_hindsight.kept == Positions{0, 1});
  CHECK(in_hindsight.until == std::vector<std::uint32_t>{0, 3, 1, 2, 3});
  // With a horizon of one step, greedy takes the best of each step, which happens to be the optimum here.
  CHECK(greedy(run, 2, 1).retained * 1024 == 14);
}

TEST_CASE("the last prompt row measured again, worked by hand") {
  // Prompt {0, 1, 2}, whose last row is step 0; token 3 is generated. One slot.
  //            0  1  2  3
  // step 0     4  3  9
  // step 1     0  2  1  5
  // Step 0 finds the one token held and its own key 2, held or not: 0 is worth 4, 1 worth 3, 2 nothing more.
  // Step 1 has no room beside token 3. 4 + 9 + 5.
  const std::vector<std::vector<int>> weights = {{4, 3, 9}, {0, 2, 1, 5}};
  const Decoding run = rows(3, 2, weights, true);
  const Solved one = optimum(run, 1);
  CHECK(one.kept == Positions{0});
  CHECK(one.until == std::vector<std::uint32_t>{1, 0, 0, 2});
  CHECK(one.retained * 1024 == 18);
  // Two slots: 0 and 1 at step 0, then 1 beside token 3: 4 + 3 + 9 and 2 + 5.
  const Solved two = optimum(run, 2);
  CHECK(two.kept == Positions{0, 1});
  CHECK(two.until == std::vector<std::uint32_t>{1, 2, 0, 2});
  CHECK(two.retained * 1024 == 23);
  // Three slots hold the prompt, of which one token is evicted for token 3; four hold all tokens.
  CHECK(optimum(run, 3).retained * 1024 == 24);
  CHECK(optimum(run, 4).retained * 1024 == 24);
  // Greedy evicts the least mass ahead, 2 with 1 against 4 and 5, then 0 with 4.
  CHECK(greedy(run, 1).kept == Positions{1});
  CHECK(greedy(run, 1).retained * 1024 == 17);
  // The attention of the last prompt token on itself is no reason to hold it: with weights 9 9 9 of step 0
  // and nothing afterwards it is evicted first.
  CHECK(optimum(rows(3, 1, {{9, 9, 9}}, true), 2).kept == Positions{0, 1});
}

TEST_CASE("the solver finds what trying every schedule finds") {
  std::size_t n_runs = 0, n_beaten = 0;
  for (std::uint32_t seed = 0; seed < 560; ++seed) {
    const bool again = seed >= 400;
    const std::size_t prompt = seed % 7, n_steps = 1 + seed / 7 % 5;
    if (again && prompt == 0) continue;
    const int levels = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 5 : 1000;
    const Decoding run = random_rows(prompt, n_steps, levels, seed, again);
    for (std::size_t budget = 1; budget <= 5; ++budget) {
      CAPTURE(seed, prompt, n_steps, budget, again);
      const double most = kvsim::test::most_retained(run, budget);
      const Solved best = optimum(run, budget);
      CHECK(best.retained == most);
      CHECK(replayed(run, budget, best) == most);
      ++n_runs;
      n_beaten += greedy(run, budget).retained < most ? 1 : 0;
    }
  }
  CHECK(n_runs == 2000 + 138 * 5);
  CHECK(n_beaten > 100);  // otherwise the runs do not distinguish the optimum from greedy
}

TEST_CASE("the solver finds what the textbook's flow finds") {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const std::size_t prompt = 10 + seed * 3, n_steps = 5 + seed % 28;
    const bool again = seed % 3 == 2;
    const Decoding run = seed % 2 == 0 ? lifelike_rows(prompt, n_steps, seed, again)
                                       : random_rows(prompt, n_steps, 4, seed, again);
    for (const std::size_t budget : {2, 7, 20, 60}) {
      CAPTURE(seed, prompt, n_steps, budget, again);
      const Solved best = optimum(run, budget);
      CHECK(best.retained ==
            Approx(kvsim::test::TextbookRetention(run.view(), prompt, budget).solve()).margin(1e-8));
      CHECK(replayed(run, budget, best) == best.retained);
    }
  }
}

TEST_CASE("the losses of the optimum, for all budgets at once") {
  // The first hand-worked run: of 6 0 1 / 0 0 5 1 / 0 7 0 0 1 one slot retains 3 and two retain 14. With
  // three step 1 attends two of 0, 1, 2 beside its own, and step 2 still has 1: no attended token is lost.
  // Losses by budget:
  const std::vector<double> by_hand = losses_of(rows(2, 3, {{6, 0, 1}, {0, 0, 5, 1}, {0, 7, 0, 0, 1}}));
  CHECK(by_hand == std::vector<double>{18 / 1024.0, 7 / 1024.0, 0, 0, 0});

  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::size_t prompt = 1 + seed % 6, n_steps = 1 + seed / 7 % 5;
    const Decoding run = random_rows(prompt, n_steps, seed % 2 == 0 ? 3 : 1000, seed, seed % 3 == 2);
    const double all = std::accumulate(run.attention.begin(), run.attention.end(), 0.0);
    const std::vector<double> losses = losses_of(run);
    REQUIRE(losses.size() == run.n_tokens());
    for (std::size_t budget = 1; budget <= losses.size(); ++budget) {
      CAPTURE(seed, prompt, n_steps, budget);
      CHECK(losses[budget - 1] == all - kvsim::test::most_retained(run, budget));
      if (budget >= 3)
        CHECK(losses[budget - 3] - losses[budget - 2] >= losses[budget - 2] - losses[budget - 1]);
    }
  }
}

TEST_CASE("the losses of the optimum are convex in the budget, on long runs") {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const Decoding run = lifelike_rows(300, seed < 4 ? 40 : 120, seed, seed % 2 == 1);
    const double all = std::accumulate(run.attention.begin(), run.attention.end(), 0.0);
    const std::vector<double> losses = losses_of(run);
    for (std::size_t b = 2; b < losses.size(); ++b)
      CHECK(losses[b - 2] - losses[b - 1] >= losses[b - 1] - losses[b] - 1e-10);
    for (const std::size_t budget : {1, 2, 17, 150, 299, 300, 301, 330}) {
      CAPTURE(seed, budget);
      CHECK(losses[budget - 1] == Approx(all - optimum(run, budget).retained).margin(1e-10));
    }
  }
}

TEST_CASE("greedy evicts what its definition evicts, at any horizon") {
  for (std::uint32_t seed = 0; seed < 90; ++seed) {
    const std::size_t prompt = seed % 12, n_steps = 1 + seed % 9;
    const bool again = seed >= 60 && prompt > 0;
    const Decoding run = random_rows(prompt, n_steps, seed % 2 == 0 ? 3 : 1000, seed, again);
    for (std::size_t budget = 1; budget < 14; ++budget) {
      for (const std::size_t horizon : {std::size_t{1}, std::size_t{3}, n_steps, kWholeFuture}) {
        CAPTURE(seed, budget, horizon);
        const RetentionPlan slow = slow_greedy(run, budget, horizon);
        const Solved fast = greedy(run, budget, horizon);
        CHECK(fast.kept == slow.kept);
        CHECK(replayed(run, budget, fast) == fast.retained);
        CHECK(replayed(run, budget, slow) == fast.retained);
      }
    }
  }
}

TEST_CASE(
    "per-step choice bounds the optimum, the optimum bounds greedy, and one more slot never lowers it") {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const Decoding run = lifelike_rows(90, 60, seed, seed % 3 == 2);
    double with_less = 0;
    for (const std::size_t budget : {1, 2, 10, 30, 89, 90, 91, 120, 149, 150}) {
      CAPTURE(seed, budget);
      const double best = optimum(run, budget).retained;
      CHECK(best <= best_of_every_step(run, budget));
      for (const std::size_t horizon : {std::size_t{1}, std::size_t{8}, kWholeFuture})
        CHECK(greedy(run, budget, horizon).retained <= best);
      CHECK(best >= with_less);
      with_less = best;
    }
  }
}

TEST_CASE("one slot holds the step's own token and nothing else") {
  const Decoding run = random_rows(4, 5, 100, 1);
  double own = 0;
  for (std::size_t s = 0; s < 5; ++s) own += static_cast<double>(run.at(s, 4 + s));
  const Solved plan = optimum(run, 1);
  CHECK(plan.retained == own);
  CHECK(plan.until == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 2, 3, 4, 5});
  CHECK(plan.kept.size() == 1);
  CHECK(greedy(run, 1).retained == own);
}

TEST_CASE("with room for all tokens nothing is evicted") {
  const Decoding run = random_rows(4, 5, 100, 2);
  const double all = std::accumulate(run.attention.begin(), run.attention.end(), 0.0);
  for (const std::size_t budget : {9, 10, 1000}) {
    const Solved plan = optimum(run, budget);
    CHECK(plan.retained == all);
    CHECK(plan.kept == Positions{0, 1, 2, 3});
    CHECK(plan.until == std::vector<std::uint32_t>(9, 5));
    CHECK(greedy(run, budget).until == plan.until);
  }
}

TEST_CASE("nothing to decode, or no prompt") {
  const auto idle_rows = rows(6, 0, {});
  const Decoding one = rows(1, 2, {{3, 1}, {2, 4, 1}});  // token 0: 3, 2; token 1: 1, 4; token 2: 1
  const Decoding bare = rows(0, 3, {{1}, {5, 1}, {9, 0, 1}});
  for (const bool best : {true, false}) {
    const auto solve = [&](const Decoding& run) { return best ? optimum(run, 2) : greedy(run, 2); };
    const Solved idle = solve(idle_rows);
    CHECK(idle.kept == Positions{4, 5});
    CHECK(idle.until == std::vector<std::uint32_t>(6, 0));
    CHECK(idle.retained == 0);

    const Solved pair = solve(one);
    CHECK(pair.kept == Positions{0});
    CHECK(pair.until == std::vector<std::uint32_t>{1, 2, 2});
    CHECK(pair.retained * 1024 == 9);

    const Solved from_nothing = solve(bare);
    CHECK(from_nothing.kept.empty());
    CHECK(from_nothing.until == std::vector<std::uint32_t>{3, 2, 3});
    CHECK(from_nothing.retained * 1024 == 17);
  }
}

TEST_CASE("entries beyond the query are not read") {
  Decoding run = random_rows(5, 4, 50, 3);
  const Solved clean = optimum(run, 3);
  for (std::size_t s = 0; s < 4; ++s)
    for (std::size_t j = 5 + s + 1; j < 9; ++j) run.attention[s * 9 + j] = 1000.0F;
  CHECK(optimum(run, 3).until == clean.until);
  CHECK(optimum(run, 3).retained == clean.retained);
}

TEST_CASE("a shape that does not fit is a bug") {
  const Decoding run = random_rows(5, 4, 50, 3);
  CHECK_THROWS_AS(MassAhead(run.view(), 4), Error);
  CHECK_THROWS_AS(MassAhead(run.view(), 7), Error);
  CHECK_NOTHROW(MassAhead(run.view(), 6));
  CHECK_THROWS_AS(MassAhead(run.view(), 5, 0), Error);
  CHECK_THROWS_AS(optimum(run, 0), Error);
  CHECK_THROWS_AS(greedy(run, 0), Error);
}

}  // namespace kvsim::policy::test_optimal_retention
