// Attention of the last queries among older tokens, while an answer is written too: MorphKV's score and
// RPC's.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_observation_window {

using Positions = std::vector<Position>;

namespace {

/// Two query heads and a window of two rows over two older positions.
Run two_rows() {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 2});
  const float rows[2][2][4] = {{{0.5F, 0.25F, 0.25F, 0}, {0.1F, 0.3F, 0.2F, 0.4F}},
                               {{0.25F, 0.5F, 0.25F, 0}, {0.2F, 0.2F, 0.2F, 0.4F}}};
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 4; ++j) run.p(head, 2 + i, j) = rows[head][i][j];
  return run;
}

std::vector<double> scores_of(const std::string& policy, const Run& run) {
  const auto eviction = parse_composition(policy, builtin()).eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  return {eviction->scores().begin(), eviction->scores().end()};
}

struct Slow {
  std::size_t window = 3;
  bool product = false, largest = false;
};

/// Scores straight from the rows of attention.
double slow_score(const Slow& rule, const Run& run, const std::set<Position>& held, Position newest,
                  Position at) {
  const auto w = static_cast<Position>(rule.window);
  const bool prompt = newest + 1 == static_cast<Position>(run.prompt);
  const Position last = prompt ? newest : newest - 1, rows = prompt ? w : std::max<Position>(1, w - 1);
  double out = 0;
  for (Position q = std::max<Position>(0, last - rows + 1); q <= last; ++q) {
    double row = 0;
    const auto weight = [&](int head, Position j) {
      return static_cast<double>(run.p(head, static_cast<std::size_t>(q), static_cast<std::size_t>(j)));
    };
    const auto share = [&](auto of) {
      double sum = 0;
      for (const Position j : held)
        if (newest - j >= w && j <= q) sum += of(j);
      return at <= q ? of(at) / sum : 0;
    };
    const int heads = run.unit.n_query_heads();
    if (rule.product) {
      row = share([&](Position j) {
        double x = 1;
        for (int head = 0; head < heads; ++head) x *= weight(head, j);
        return x;
      });
    } else {
      for (int head = 0; head < heads; ++head) row += share([&](Position j) { return weight(head, j); });
    }
    out = rule.largest ? std::max(out, row) : out + row;
  }
  return out;
}

Fed slow(const Slow& rule, const Run& run, std::size_t budget) {
  return feed_cutting(
      [&](const Attended& /*attended*/, std::set<Position>& held, std::size_t size, Position newest) {
        const std::set<Position> all = held;
        std::vector<std::pair<double, Position>> order;
        for (const Position at : all)
          if (newest - at >= static_cast<Position>(rule.window))
            order.emplace_back(slow_score(rule, run, all, newest, at), at);
        std::sort(order.begin(), order.end());
        for (std::size_t i = 0; held.size() > size; ++i) held.erase(order[i].second);
      },
      run, budget);
}

}  // namespace

TEST_CASE("observation_window by hand: rows are shares among older tokens") {
  // Shares of the older two: heads (2/3, 1/3) and (1/3, 2/3), then (1/4, 3/4) and (1/2, 1/2). Means (1/2,
  // 1/2) and (3/8, 5/8). Products (1/8, 1/8) and (.02, .06) are shares (1/2, 1/2) and (1/4, 3/4).
  const auto check = [](const std::string& policy, double first, double second) {
    const std::vector<double> scores = scores_of(policy, two_rows());
    CHECK(scores[0] == Approx(first));
    CHECK(scores[1] == Approx(second));
    CHECK(scores[2] == 0);
    CHECK(feed(policy, two_rows(), 3).kept == Positions{1, 2, 3});
  };
  check("observation_window(window=2)", 0.4375, 0.5625);
  check("observation_window(window=2,rows=max)", 0.5, 0.625);
  check("observation_window(window=2,heads=product)", 0.375, 0.625);
  check("observation_window(window=2,heads=product,rows=max)", 0.5, 0.75);
  check("observation_window(window=2,pool=max:3)", 0.5625, 0.5625);
}

TEST_CASE("while an answer is written the window's rows rank, by hand") {
  // The window of 2 holds the arriving token, so its only row is that of the token before. Token 3, of the
  // prompt, attends 0, 1, 2 as 1 : 3 : 2; token 4 attends 1, 2, 3 as 2 : 1 : 3.
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  const float third[4] = {0.1F, 0.3F, 0.2F, 0.4F}, fourth[5] = {0.4F, 0.2F, 0.1F, 0.3F, 0};
  for (std::size_t j = 0; j < 4; ++j) run.p(0, 3, j) = third[j];
  for (std::size_t j = 0; j < 5; ++j) run.p(0, 4, j) = fourth[j];
  CHECK(feed("observation_window(window=2,decode=true)", run, 4).held ==
        std::vector<Positions>{{1, 2, 3, 4}, {1, 3, 4, 5}});
}

TEST_CASE("observation_window ranks as its definition does") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const bool layer = seed % 2 == 1;
    const Run run = random_run({.prompt = 10, .decode = 20, .n_lanes = layer ? 2 : 1, .group = 2}, seed);
    for (const bool product : {false, true})
      for (const bool largest : {false, true}) {
        const std::size_t window = 1 + seed % 4, budget = 6 + seed % 3;
        const std::string policy = "observation_window(decode=true,window=" + std::to_string(window) +
                                   (product ? ",heads=product" : "") + (largest ? ",rows=max" : "") +
                                   (layer ? ",unit=layer)" : ")");
        CAPTURE(policy, seed);
        const Fed fed = feed(policy, run, budget), expected = slow({window, product, largest}, run, budget);
        CHECK(fed.kept == expected.kept);
        CHECK(fed.held == expected.held);
      }
  }
}

TEST_CASE("with one head and the last row alone observation_window is tova") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 9, .decode = 20, .n_lanes = 1, .group = 1}, seed);
    CHECK(feed("observation_window(window=1,decode=true)", run, 6).held ==
          feed("tova(unit=lane,window=1)", run, 6).held);
  }
}

TEST_CASE("without decode generated tokens are appended") {
  const Run run = random_run({.prompt = 9, .decode = 4, .n_lanes = 1, .group = 2}, 1);
  CHECK(feed("observation_window(window=2)", run, 6).held.back().size() == 10);
  CHECK(feed("morph_kv", run, 32).held.back().size() == 13);
}

}  // namespace kvsim::policy::test::test_eviction_observation_window
