#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_scissorhands {

using Positions = std::vector<Position>;

namespace {

struct Options {
  std::string count = "low";
  bool held = false, raw = false, newest_leaves = false, quirk = false;
  std::size_t history = 400, sinks = 0, window = 10;
  double drop = 0.5;

  std::string text(const std::string& prompt) const {
    return "scissorhands(count=" + count + ",threshold=" + (held ? "held" : "position") +
           ",feedback=" + (raw ? "raw" : "renorm") + ",tie=" + (newest_leaves ? "newest" : "oldest") +
           ",quirk_fill_tie=" + (quirk ? "true" : "false") + ",history=" + std::to_string(history) +
           ",sinks=" + std::to_string(sinks) + ",window=" + std::to_string(window) +
           ",drop=" + std::to_string(drop) + ",prompt=" + prompt + ")";
  }
};

/// The score from the definition: every query of the history is evaluated again.
double score(const Options& options, const Run& run, const Attended& attended, Position j, bool prompt_full) {
  double seen = 0, pivotal = 0;
  const std::size_t n = attended.size(), first = n - std::min(n, options.history);
  for (std::size_t query = first; query < n; ++query) {
    if (!attended[query].contains(j)) continue;
    const bool full = options.raw || (prompt_full && query < run.prompt);
    const double a = full ? mean_row(run, query, j) : renormalised(run, attended, query, j);
    const auto keys = static_cast<double>(options.held ? attended[query].size() : query + 1);
    ++seen;
    if (a * keys >= 1) ++pivotal;
  }
  if (options.count == "low") return pivotal - seen;
  return options.count == "pivotal" || seen == 0 ? pivotal : pivotal / seen;
}

/// Returns the positions that may be evicted when `newest` has joined or is about to, worst first.
Positions worst_first(const Options& options, const Run& run, const Attended& attended,
                      const std::set<Position>& held, Position newest, bool prompt_full) {
  std::vector<std::pair<double, Position>> ranked;
  for (const Position j : held)
    if (j >= static_cast<Position>(options.sinks) && j <= newest - static_cast<Position>(options.window))
      ranked.emplace_back(score(options, run, attended, j, prompt_full), options.newest_leaves ? -j : j);
  std::sort(ranked.begin(), ranked.end());
  Positions out;
  for (const auto& [value, j] : ranked) out.push_back(options.newest_leaves ? -j : j);
  return out;
}

Fed slow(const Options& options, const Run& run, std::size_t budget, bool streams) {
  Attended attended;
  std::set<Position> held;
  std::size_t query = 0;
  if (!streams) {
    for (; query < run.prompt; ++query) {
      held.insert(static_cast<Position>(query));
      attended.push_back(held);
    }
    const Positions worst =
        worst_first(options, run, attended, held, static_cast<Position>(run.prompt) - 1, true);
    for (std::size_t i = 0; held.size() > budget; ++i) held.erase(worst[i]);
  }
  Fed out;
  out.kept.assign(held.begin(), held.end());
  for (; query < run.length(); ++query) {
    const auto position = static_cast<Position>(query);
    const Positions worst = worst_first(options, run, attended, held, position, !streams);
    const bool quirk =
        options.quirk && !worst.empty() && score(options, run, attended, worst[0], !streams) <= 0;
    if (held.size() == budget || quirk) {
      const auto share = static_cast<std::size_t>(options.drop * static_cast<double>(held.size()));
      const std::size_t leaving = std::min(std::max<std::size_t>(share, 1), worst.size());
      for (std::size_t i = 0; i < leaving; ++i) held.erase(worst[i]);
    }
    held.insert(position);
    attended.push_back(held);
    if (query + 1 == run.prompt) out.kept.assign(held.begin(), held.end());
    if (query >= run.prompt) out.held.emplace_back(held.begin(), held.end());
  }
  return out;
}

void fill(Run& run, const std::vector<std::vector<float>>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < rows[i].size(); ++j) run.p(0, i, j) = rows[i][j];
}

/// Rows with weights of a few sizes, exact in binary: many attend exactly the average.
Run coarse_run(const Shape& shape, std::uint64_t seed) {
  Run run = random_run(shape, seed);
  for (std::vector<float>& rows : run.rows)
    for (float& p : rows) p = p > 0.1F ? 0.25F : p > 0.02F ? 0.125F : p > 0 ? 0.0625F : 0;
  return run;
}

}  // namespace

TEST_CASE("scissorhands evicts half of the cache at once, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 3, .n_lanes = 1, .group = 1});
  fill(run, {{1},
             {0.75F, 0.25F},
             {0.5F, 0.125F, 0.375F},
             {0.125F, 0.125F, 0.5F, 0.25F},
             {0.125F, 0.125F, 0.5F, 0.125F, 0.125F},
             {0, 0, 0.5F, 0, 0.25F, 0.25F},
             {0, 0, 0, 0, 0, 0, 1}});
  // Low attention, below 1, 1/2, 1/3, 1/4: position 0 in row 3; 1 in rows 1, 2, 3; 2 never; 3 never (1/4 is
  // the average). Budget 4, one recent. 4 arrives: two are evicted, 1 and then, of 0 (once), 2 and 3 (never),
  // 0.
  // 2 3 4 attend 4: of mass 0.75 they have 2/3, 1/6, 1/6, below 1/5: 3 and 4 are low once. 5 fills up. Its
  // row over 2 3 4 5, of mass 1, is below 1/6 for 3 alone. 6 arrives: 3 (twice) and 4 (once) are evicted.
  const Fed fed = feed("scissorhands(window=1)", run, 4);
  CHECK(fed.kept == Positions{0, 1, 2, 3});
  CHECK(fed.held == std::vector<Positions>{{2, 3, 4}, {2, 3, 4, 5}, {2, 5, 6}});
}

TEST_CASE("the two readings differ when tokens are seen unequally often, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 1, .n_lanes = 1, .group = 1});
  fill(run, {{1}, {0.75F, 0.25F}, {0.25F, 0.25F, 0.5F}, {0.125F, 0.125F, 0.5F, 0.25F}, {1}});
  // Pivotal / low so far: 0 twice / twice, 1 never / three times, 2 twice / never, 3 once / never.
  // Of all four the counts of pivotal moments drop 1 and 3, those of low attention 1 and 0, shares too.
  CHECK(feed("scissorhands(window=0,count=pivotal)", run, 4).held[0] == Positions{0, 2, 4});
  CHECK(feed("scissorhands(window=0,count=low)", run, 4).held[0] == Positions{2, 3, 4});
  CHECK(feed("scissorhands(window=0,count=share)", run, 4).held[0] == Positions{2, 3, 4});
  // With a history of only the last row: 0 and 1 are low, the older first; nothing else.
  CHECK(feed("scissorhands(window=0,history=1,drop=0)", run, 4).held[0] == Positions{1, 2, 3, 4});
}

TEST_CASE("scissorhands agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Shape shape{
        .prompt = 2 + seed % 13, .decode = 14, .n_lanes = 1, .group = 1 + static_cast<int>(seed % 2)};
    const Run run = seed % 4 == 0 ? coarse_run(shape, seed) : random_run(shape, seed);
    Options options{.count = seed % 3 == 0   ? "low"
                             : seed % 3 == 1 ? "pivotal"
                                             : "share",
                    .held = seed % 2 == 1,
                    .raw = seed % 5 == 1,
                    .newest_leaves = seed % 7 == 1,
                    .quirk = seed % 6 == 1,
                    .history = seed % 4 < 2 ? 3 + seed % 5 : 400,
                    .sinks = seed % 3,
                    .window = seed % 4,
                    .drop = seed % 5 == 2   ? 0.0
                            : seed % 5 == 3 ? 1.0
                                            : 0.5};
    for (std::size_t budget = options.sinks + std::max<std::size_t>(options.window, 1); budget < 18;
         ++budget) {
      for (const bool streams : {true, false}) {
        const std::string policy = options.text(streams ? "stream" : "rank");
        CAPTURE(policy, seed, budget);
        const Fed expected = slow(options, run, budget, streams);
        const Fed fed = feed(policy, run, budget);
        CHECK(fed.kept == expected.kept);
        CHECK(fed.held == expected.held);
      }
    }
  }
}

TEST_CASE("free slots that win ties keep the cache from filling") {
  // Budget 30 holds all but the last tokens. With the quirk, a token that no query has found pivotal yet is
  // evicted for each arriving token, as long as there is such a token beside the sinks and the window.
  const Run run = random_run({.prompt = 6, .decode = 30, .n_lanes = 1, .group = 1}, 4);
  const std::string base = "scissorhands(count=share,threshold=held,sinks=2,window=3,drop=0,prompt=compress";
  const Fed plain = feed(base + ")", run, 30);
  const Fed quirk = feed(base + ",quirk_fill_tie=true)", run, 30);
  CHECK(plain.held[20].size() == 27);
  CHECK(quirk.held[20].size() < 27);
  for (const Positions& held : quirk.held) {
    CHECK(held[0] == 0);
    CHECK(held[1] == 1);
    CHECK(held.size() >= 6);
  }
}

TEST_CASE("cold-compress cuts the prompt by its last 16 rows and counts it as one query, worked by hand") {
  Run run = blank_run({.prompt = 24, .decode = 2, .n_lanes = 1, .group = 1});
  // Rows attend themselves, except the last 16, which attend 5, and the first eight, which attend 0.
  for (std::size_t i = 0; i < 24; ++i) run.p(0, i, i < 8 ? 0 : 5) = 1;
  run.p(0, 24, 7) = run.p(0, 25, 7) = 1;
  // Budget 22: four sinks, and the last 16 rows leave two places. Averages over five inside 0..7 are equal
  // for 3, 4, 5, 6 (five inside) and higher at 7 (4 inside: 5, 6, 7 and 4 is not; 16/3). 3 is a sink; so 7
  // and, of the equal 4, 5, 6, the newest.
  const Fed fed = feed("scissorhands.cold_compress", run, 22);
  Positions expected = {0, 1, 2, 3, 6, 7};
  for (Position j = 8; j < 24; ++j) expected.push_back(j);
  CHECK(fed.kept == expected);
  // Column means: position 0 has 8/24, pivotal, the rest 0. 24 arrives: of the unprotected, all never
  // pivotal, the lowest slot is that of 6. 25 arrives: its predecessor found 7 pivotal, so 8 is evicted.
  CHECK_FALSE(std::count(fed.held[0].begin(), fed.held[0].end(), 6));
  CHECK(std::count(fed.held[1].begin(), fed.held[1].end(), 7));
  CHECK_FALSE(std::count(fed.held[1].begin(), fed.held[1].end(), 8));
}

TEST_CASE("scissorhands that evicts one of equal tokens at a time is the window") {
  // All tokens are equally pivotal: the oldest are evicted, one at a time.
  Run run = blank_run({.prompt = 9, .decode = 9, .n_lanes = 1, .group = 1});
  for (std::size_t i = 0; i < run.length(); ++i)
    for (std::size_t j = 0; j <= i; ++j) run.p(0, i, j) = 1;
  for (std::size_t budget = 2; budget < 12; ++budget)
    CHECK(feed("scissorhands(window=1,drop=0,count=share)", run, budget).held ==
          feed("window", run, budget).held);
}

}  // namespace kvsim::policy::test::test_eviction_scissorhands
