// A layer with a sliding window holds no token that the next query cannot see.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_sliding_window {

namespace {

constexpr std::size_t kSpan = 5;

/// Each row sees the last `span` positions, itself included.
Run windowed_run(std::uint64_t seed, std::size_t decode, std::size_t span) {
  Run run = random_run({.prompt = 30, .decode = decode, .n_lanes = 1, .group = 2}, seed);
  run.unit.span = span;
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < run.length(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        if (i - j >= span) run.p(head, i, j) = 0;
        sum += run.p(head, i, j);
      }
      for (std::size_t j = 0; j <= i; ++j) run.p(head, i, j) /= sum;
    }
  return run;
}

}  // namespace

TEST_CASE("a unit knows which queries see which keys") {
  CacheUnit unit{.span = 5};
  CHECK(unit.sees(9, 5));
  CHECK_FALSE(unit.sees(9, 4));
  CHECK(unit.seen_by(0, kAllRows, 30) == 5);
  CHECK(unit.seen_by(27, kAllRows, 30) == 3);
  CHECK(unit.seen_by(26, 2, 30) == 2);
  CHECK(unit.seen_by(22, 2, 30) == 0);  // seen up to row 26
  CHECK(unit.seen_by(24, 3, 30) == 2);  // rows 27 and 28
  unit.span = 0;
  CHECK(unit.sees(9, 0));
  CHECK(unit.seen_by(4, kAllRows, 30) == 26);
  CHECK(unit.seen_by(4, 7, 30) == 7);
}

TEST_CASE("a window layer, worked by hand: what it has left behind is neither a candidate nor kept") {
  // Keys are scalars 0, 1, 2, ... in their first component, so that l2_norm keeps the oldest that it sees.
  // Of a prompt of eight the window of five holds 3 ... 7; two of these are kept, and two generated tokens
  // take a slot each before the window leaves 3 and 4 behind, at positions 8 and 9.
  Run run = blank_run({.prompt = 8, .decode = 4, .n_lanes = 1, .group = 1});
  run.unit.span = kSpan;
  for (std::size_t j = 0; j < run.length(); ++j) run.keys[0][3 * j] = static_cast<float>(j + 1);
  const Fed fed = feed("l2_norm(drop=0,sinks=0)", run, 2);
  CHECK(fed.kept == std::vector<Position>{3, 4});
  CHECK(fed.held == std::vector<std::vector<Position>>{{4, 8}, {8, 9}, {8, 10}, {8, 11}});
  // Tokens that only append: what is kept leaves with the window, and no more is held than that.
  const Fed appended = feed("l2_norm(sinks=0,decode=false)", run, 2);
  CHECK(appended.kept == std::vector<Position>{3, 4});
  CHECK(appended.held == std::vector<std::vector<Position>>{{4, 8}, {8, 9}, {8, 9, 10}, {8, 9, 10, 11}});
  // The sinks are gone, so that they take nothing of the budget.
  CHECK(feed("l2_norm(drop=0,sinks=2)", run, 4).kept == std::vector<Position>{3, 4, 5, 6});
}

TEST_CASE("keydiff spends its budget on keys that a later query can see, and compares only these") {
  // The keys before the window point the other way, and would all be kept: each differs most from the mean of
  // the many. Of those within the window one differs from the others.
  Run run = blank_run({.prompt = 20, .decode = 3, .n_lanes = 1, .group = 1});
  run.unit.span = kSpan;
  for (std::size_t j = 0; j < run.length(); ++j) {
    run.keys[0][3 * j] = j < 4 ? -1.0F : 1.0F;
    run.keys[0][3 * j + 1] = j == 17 ? 1.0F : 0.0F;
  }
  CHECK(feed("keydiff", run, 1).kept == std::vector<Position>{17});
  run.unit.span = 0;
  CHECK(feed("keydiff", run, 1).kept != std::vector<Position>{17});
}

TEST_CASE("with a window no unit holds what it has left behind, and a budget of the window holds all of it") {
  for (const std::string& policy : kvsim::test::every_policy()) {
    const Composition composition = parse_composition(policy, builtin());
    const Part& part = composition.eviction;
    if (part.spec->kind() != Kind::eviction || !composition.allocation.spec->even()) continue;
    for (const std::size_t span : {std::size_t{1}, kSpan, std::size_t{17}})
      for (const std::size_t budget : {std::size_t{4}, span}) {
        Run run = windowed_run(span, 12, span);
        if (composition.layer_unit()) run.unit.n_lanes = 1;
        if (budget < part.floor() && budget < span && !part.spec->own_budget()) continue;
        CAPTURE(policy, span, budget);
        const Fed fed = feed(composition, run, std::max(budget, std::min(part.floor(), span)));
        for (const Position held : fed.kept) CHECK(static_cast<std::size_t>(held) + span >= run.prompt);
        for (std::size_t s = 0; s < fed.held.size(); ++s) {
          const std::size_t position = run.prompt + s;
          for (const Position held : fed.held[s]) CHECK(static_cast<std::size_t>(held) + span > position);
          CHECK(fed.held[s].size() <= span);
          if (budget >= span && !part.spec->own_budget() && policy.find("quirk") == std::string::npos)
            CHECK(fed.held[s].size() == span);
        }
      }
  }
}

TEST_CASE("a window as long as the run changes nothing") {
  for (const std::string& policy : kvsim::test::every_policy()) {
    const Composition composition = parse_composition(policy, builtin());
    if (composition.eviction.spec->kind() != Kind::eviction) continue;
    Run run = random_run({.prompt = 40, .decode = 12, .n_lanes = 1, .group = 2}, 7);
    const std::size_t budget = std::max<std::size_t>(20, composition.eviction.floor());
    if (budget > run.prompt) continue;
    CAPTURE(policy);
    const Fed plain = feed(composition, run, budget);
    run.unit.span = run.length();
    const Fed windowed = feed(composition, run, budget);
    CHECK(plain.kept == windowed.kept);
    CHECK(plain.held == windowed.held);
  }
}

}  // namespace kvsim::policy::test::test_sliding_window
