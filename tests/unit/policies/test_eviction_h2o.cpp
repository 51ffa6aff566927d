#include <catch2/catch.hpp>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_h2o {

using Positions = std::vector<Position>;

namespace {

/// All attention that the position received: prompt rows as they are (unless they are streamed), later rows
/// over what was resident (or as they are).
SlowRule accumulated(std::size_t recent, bool raw, bool drop_newest = false, bool streams = false) {
  return {.score =
              [=](const Run& run, const Attended& attended, Position j) {
                double sum = 0;
                for (std::size_t query = 0; query < attended.size(); ++query) {
                  if (!attended[query].contains(j)) continue;
                  sum += raw || (query < run.prompt && !streams) ? mean_row(run, query, j)
                                                                 : renormalised(run, attended, query, j);
                }
                return sum;
              },
          .window = recent,
          .drop_newest_of_equals = drop_newest,
          .streams = streams};
}

/// The parameters rows, prompt_weight and normalise, implemented from their descriptions.
struct Weighing {
  std::size_t rows;
  std::string prompt_weight, normalise;

  std::string text() const {
    return "rows=" + std::to_string(rows) + ",prompt_weight=" + prompt_weight + ",normalise=" + normalise;
  }
  double operator()(const Run& run, const Attended& attended, Position j) const {
    const std::size_t first = rows == 0 || rows > run.prompt ? 0 : run.prompt - rows;
    double sum = 0, seen = 0, later = 0, n_later = 0;
    for (std::size_t query = first; query < attended.size(); ++query) {
      if (static_cast<std::size_t>(j) > query) continue;
      if (query < run.prompt)
        sum += mean_row(run, query, j), ++seen;
      else
        later += renormalised(run, attended, query, j), ++n_later;
    }
    if (seen > 0 && prompt_weight == "mean") sum /= static_cast<double>(run.prompt - first);
    if (seen > 0 && prompt_weight == "visible") sum /= seen;
    if (prompt_weight != "sum") seen = std::min(seen, 1.0);
    return normalise == "mean" ? (sum + later) / (seen + n_later) : sum + later;
  }
};

void fill(Run& run, int head, const std::vector<std::vector<float>>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j) run.p(head, i, j) = rows[i][j];
}

}  // namespace

TEST_CASE("h2o keeps heavy hitters and recent tokens, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  fill(run, 0,
       {{1},
        {0.5F, 0.5F},
        {0.25F, 0.5F, 0.25F},
        {0.25F, 0.25F, 0.25F, 0.25F},
        {0.125F, 0.5F, 0.125F, 0.125F, 0.125F},
        {0.25F, 0.25F, 0.125F, 0.125F, 0.125F, 0.125F}});
  // Column sums of the prompt: 2, 1.25, 0.5, 0.25. Budget 3: floor(0.5 * 3) = 1 recent (position 3) and the
  // two heaviest (0 and 1). Position 4 arrives and is the recent one: of 0 (2), 1 (1.25), 3 (0.25), position
  // 3 is evicted. Step 4 attends 0, 1, 4 with raw 0.125, 0.5, 0.125 of mass 0.75: sums become 0 2.167, 1
  // 1.917, 4 0.167. Position 5 arrives: 4 is evicted.
  const Fed fed = feed("h2o", run, 3);
  CHECK(fed.kept == Positions{0, 1, 3});
  CHECK(fed.held == std::vector<Positions>{{0, 1, 4}, {0, 1, 5}});
}

TEST_CASE("renormalised and raw feedback differ, worked by hand") {
  Run run = blank_run({.prompt = 3, .decode = 3, .n_lanes = 1, .group = 1});
  fill(run, 0,
       {{1},
        {0.5F, 0.5F},
        {0.5F, 0.25F, 0.25F},
        {0.125F, 0.125F, 0.5F, 0.25F},
        {0.5F, 0.125F, 0.125F, 0.125F, 0.125F},
        {0.5F, 0.5F, 0, 0, 0, 0}});
  // Budget 2, nothing recent. Prompt sums 2, 0.75, 0.25: 0 and 1 are kept. Position 3 replaces 1.
  // Step 3 over {0, 3}: raw 0.125, 0.25; renormalised 1/3, 2/3. Position 4 replaces 3 (0.25 or 0.667 against
  // 2 + ...). The raw rule gives 3 less than the renormalised one, but both drop it: 0 has at least 2.125.
  CHECK(feed("h2o(recent=0)", run, 2).held == std::vector<Positions>{{0, 3}, {0, 4}, {0, 5}});
  // Prompt sums shrunk tenfold let the first step decide: 0 has 0.2 + 1/3 against 2/3 renormalised, so 0 is
  // evicted; raw 0.2 + 0.125 against 0.25, so 3 is evicted.
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j <= i; ++j) run.p(0, i, j) /= 10;
  CHECK(feed("h2o(recent=0)", run, 2).held[1] == Positions{3, 4});
  CHECK(feed("h2o(recent=0,feedback=raw)", run, 2).held[1] == Positions{0, 4});
}

TEST_CASE("h2o agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const int group = 1 + static_cast<int>(seed % 3);
    const Run run = random_run(
        {.prompt = seed % 10 == 9 ? 60 : 2 + seed % 11, .decode = 12, .n_lanes = 1, .group = group}, seed);
    for (std::size_t budget = 1; budget < 16; ++budget) {
      for (const auto& [text, share] : {std::pair{"0", 0.0}, {"0.5", 0.5}, {"0.8", 0.8}, {"1", 1.0}}) {
        for (const bool raw : {false, true}) {
          const std::string policy =
              std::string("h2o(recent=") + text + ",feedback=" + (raw ? "raw" : "renorm") + ")";
          const auto recent = static_cast<std::size_t>(share * static_cast<double>(budget));
          const Fed slow = feed_slowly(accumulated(recent, raw), run, budget);
          const Fed fast = feed(policy, run, budget);
          CAPTURE(policy, seed, budget);
          CHECK(fast.kept == slow.kept);
          CHECK(fast.held == slow.held);
        }
      }
    }
  }
}

TEST_CASE("h2o per layer accumulates over the query heads of every lane") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 9, .decode = 8, .n_lanes = 2, .group = 2}, seed);
    for (std::size_t budget = 1; budget < 10; ++budget)
      CHECK(feed("h2o(unit=layer)", run, budget).held ==
            feed_slowly(accumulated(budget / 2, false), run, budget).held);
  }
}

TEST_CASE("equal accumulations are evicted in the order that tie says") {
  // Weights in sixteenths: every sum is exact, and ties are many.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Run run = random_run({.prompt = 8, .decode = 8, .n_lanes = 1, .group = 2}, seed, 2);
    for (int head = 0; head < 2; ++head)
      for (std::size_t i = 0; i < run.length(); ++i)
        for (std::size_t j = 0; j <= i; ++j)
          run.p(head, i, j) = run.p(head, i, j) * static_cast<float>(i + 1) < 1 ? 0.0625F : 0.125F;
    for (std::size_t budget = 1; budget < 9; ++budget) {
      for (const bool newest : {false, true}) {
        const std::string policy =
            std::string("h2o(recent=0,feedback=raw,tie=") + (newest ? "newest)" : "oldest)");
        CHECK(feed(policy, run, budget).held == feed_slowly(accumulated(0, true, newest), run, budget).held);
      }
    }
  }
}

TEST_CASE("h2o with recent tokens only is the window") {
  const Run run = random_run({.prompt = 12, .decode = 12}, 3);
  for (std::size_t budget = 1; budget < 30; ++budget) {
    CHECK(feed("h2o(recent=1)", run, budget).kept == feed("window", run, budget).kept);
    CHECK(feed("h2o(recent=1)", run, budget).held == feed("window", run, budget).held);
  }
}

TEST_CASE("what the prompt contributes and what the sum is divided by, as described") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = random_run({.prompt = 3 + seed, .decode = 9, .n_lanes = 1, .group = 2}, seed);
    for (const std::size_t rows : {0U, 1U, 4U, 50U}) {
      for (const char* weight : {"sum", "mean", "visible"}) {
        for (const char* normalise : {"sum", "mean"}) {
          const Weighing weighing{rows, weight, normalise};
          for (std::size_t budget = 2; budget < 14; budget += 3) {
            const std::string policy = "h2o(recent=0,sinks=1,window=1," + weighing.text() + ")";
            const Fed slow = feed_slowly({weighing, 1, 1}, run, budget), fast = feed(policy, run, budget);
            CAPTURE(policy, seed, budget);
            CHECK(fast.kept == slow.kept);
            CHECK(fast.held == slow.held);
          }
        }
      }
    }
  }
}

TEST_CASE("a streamed prompt is accumulated over what was resident") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 2 + seed, .decode = 9, .n_lanes = 1, .group = 2}, seed);
    for (std::size_t budget = 1; budget < 14; ++budget) {
      const Fed slow = feed_slowly(accumulated(budget / 2, false, false, true), run, budget);
      CHECK(feed("h2o.stream", run, budget).kept == slow.kept);
      CHECK(feed("h2o.stream", run, budget).held == slow.held);
    }
  }
}

TEST_CASE("the recent share comes on top of the window, as far as sinks leave room") {
  // Budget 10, 2 sinks, window 2: recent=0.5 adds 5, so the last 7 and 1 heavy hitter.
  const Run run = random_run({.prompt = 30, .decode = 20}, 1);
  const Fed fed = feed("h2o(recent=0.5,sinks=2,window=2)", run, 10);
  CHECK(fed.held == feed("h2o(recent=0,sinks=2,window=7)", run, 10).held);
  CHECK(fed.held != feed("h2o(recent=0,sinks=2,window=6)", run, 10).held);
  CHECK(feed("h2o(recent=1,sinks=4)", run, 10).held == feed("streaming_llm", run, 10).held);
}

TEST_CASE("without recent tokens accumulated scores freeze") {
  // Uniform rows: position j of a prompt of 12 has 1/(j+1) + ... + 1/12, so the oldest lead, and a generated
  // token has one row of at most 1/13. Each is evicted when the next arrives; the kept part of the prompt
  // never changes.
  const Run run = random_run({.prompt = 12, .decode = 30}, 1, 1);
  const Fed frozen = feed("h2o(recent=0)", run, 6);
  for (std::size_t step = 0; step < run.decode; ++step)
    CHECK(frozen.held[step] == Positions{0, 1, 2, 3, 4, static_cast<Position>(12 + step)});
  const Fed alive = feed("h2o", run, 6);
  CHECK(alive.held.back() == Positions{0, 1, 2, 39, 40, 41});
}

TEST_CASE("h2o as other codes than the authors' implement it, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  fill(run, 0,
       {{1},
        {0.5F, 0.5F},
        {0.25F, 0.5F, 0.25F},
        {0.125F, 0.125F, 0.125F, 0.625F},
        {0.5F, 0, 0, 0.25F, 0.25F},
        {1}});
  // Sums 1.875, 1.125, 0.375, 0.625; divided by the 4, 3, 2, 1 rows that see the key: 0.47, 0.375, 0.19,
  // 0.625.
  CHECK(feed("h2o(recent=0)", run, 2).kept == Positions{0, 1});
  CHECK(feed("h2o.kvpress", run, 2).kept == Positions{0, 3});
  CHECK(feed("h2o.kvpress", run, 2).held.back() == Positions{0, 3, 4, 5});  // appended
  // The mean over all 4 rows ranks as the sum does.
  CHECK(feed("h2o(recent=0,prompt_weight=mean)", run, 2).kept == Positions{0, 1});
  // KVCache-Factory, capacity 10 of 14: 8 of the window and the 2 largest sums before it.
  const Run longer = random_run({.prompt = 14, .decode = 2}, 5, 1);
  CHECK(feed("h2o.factory", longer, 10).held.back() == Positions{0, 1, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
}

TEST_CASE("h2o's printed algorithm is tova per KV head") {
  const Run run = random_run({.prompt = 20, .decode = 20}, 8);
  for (std::size_t budget = 1; budget < 22; ++budget)
    CHECK(feed("h2o.alg1", run, budget).held == feed("tova(unit=lane)", run, budget).held);
}

TEST_CASE("h2o cannot stream a prompt when generated tokens are only appended") {
  const Run run = random_run({.prompt = 6, .decode = 2}, 8);
  CHECK_THROWS_WITH(feed("h2o(prompt=stream,decode=false)", run, 3), Catch::Contains("would never evict"));
}

TEST_CASE("D2O's tokens: half of the budget recent, the sinks among the other half") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 30, .decode = 20}, seed);
    for (std::size_t budget = 8; budget < 24; ++budget) {
      SlowRule rule = accumulated(budget / 2, false);
      rule.sinks = 4;
      const Fed fed = feed("h2o.d2o", run, budget), slow = feed_slowly(rule, run, budget);
      CHECK(fed.kept == slow.kept);
      // A token attends before another is evicted, so one more is attended.
      Positions first = slow.kept;
      first.push_back(30);
      CHECK(fed.held[0] == first);
    }
  }
}

}  // namespace kvsim::policy::test::test_eviction_h2o
