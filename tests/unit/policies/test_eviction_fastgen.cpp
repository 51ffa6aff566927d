#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_fastgen {

using Positions = std::vector<Position>;

namespace {

/// Masks as in the definition, row by row, over all that is attended so far.
struct SlowFastGen {
  double recovery = 0.9, frequent = 0.3, local = 0.3;
  std::size_t sinks = 0;
  bool raw = false;

  std::string text() const {
    return "fastgen(recovery=" + std::to_string(recovery) + ",frequent=" + std::to_string(frequent) +
           ",local=" + std::to_string(local) + ",sinks=" + std::to_string(sinks) +
           ",feedback=" + (raw ? "raw" : "renorm") + ")";
  }

  /// rule: 0 special, 1 punctuation, 2 frequent, 3 local, 4 full.
  bool by_class(const Run& run, int rule, Position j) const {
    const auto classes = run.classes[static_cast<std::size_t>(j)];
    return j < static_cast<Position>(sinks) || (classes & kSpecialToken) != 0 ||
           (rule >= 1 && (classes & kPunctuation) != 0);
  }
  /// Mean attention over the queries that saw it.
  double mean(const Run& run, const Attended& attended, Position j) const {
    double sum = 0;
    int queries = 0;
    for (std::size_t query = 0; query < attended.size(); ++query) {
      if (!attended[query].contains(j)) continue;
      ++queries;
      sum += query < run.prompt || raw ? mean_row(run, query, j) : renormalised(run, attended, query, j);
    }
    return sum / queries;
  }
  /// The most frequent of those that are not kept for their class.
  std::set<Position> most_frequent(const Run& run, const Attended& attended, const std::set<Position>& held,
                                   std::size_t length) const {
    std::vector<std::pair<double, Position>> order;
    for (const Position j : held)
      if (!by_class(run, 2, j)) order.emplace_back(mean(run, attended, j), j);
    std::sort(order.rbegin(), order.rend());  // of equals the newer first
    const auto most = static_cast<std::size_t>(std::ceil(frequent * static_cast<double>(length)));
    std::set<Position> out;
    for (std::size_t i = 0; i < std::min(most, order.size()); ++i) out.insert(order[i].second);
    return out;
  }
  /// Returns the positions kept for the query at `query`; `frequent_ones`: of the whole prompt, or at this
  /// step.
  bool kept(const Run& run, int rule, const std::set<Position>& frequent_ones, std::size_t query,
            std::size_t width, Position j) const {
    return rule == 4 || by_class(run, rule, j) || (rule >= 2 && frequent_ones.contains(j)) ||
           (rule == 3 && j + static_cast<Position>(width) > static_cast<Position>(query));
  }
  std::size_t width(std::size_t length) const {
    return std::max<std::size_t>(1, static_cast<std::size_t>(local * static_cast<double>(length)));
  }

  double recovered(const Run& run, int rule, const std::set<Position>& frequent_ones) const {
    double sum = 0;
    for (std::size_t query = 0; query < run.prompt; ++query)
      for (Position j = 0; j <= static_cast<Position>(query); ++j)
        if (kept(run, rule, frequent_ones, query, width(run.prompt), j)) sum += mean_row(run, query, j);
    return sum / static_cast<double>(run.prompt);
  }

  int rule_of(const Run& run, const std::set<Position>& frequent_ones) const {
    for (int rule = 0; rule < 4; ++rule)
      if (recovered(run, rule, frequent_ones) >= recovery) return rule;
    return 4;
  }

  struct Answer {
    Fed fed;
    int rule = 4;
    double recovered = 1;
  };

  Answer feed(const Run& run) const {
    Attended attended;
    std::set<Position> held;
    for (std::size_t query = 0; query < run.prompt; ++query) {
      held.insert(static_cast<Position>(query));
      attended.push_back(held);
    }
    const std::set<Position> of_prompt = most_frequent(run, attended, held, run.prompt);
    Answer out;
    out.rule = rule_of(run, of_prompt);
    out.recovered = recovered(run, out.rule, of_prompt);
    keep(run, out.rule, of_prompt, run.prompt - 1, held);
    out.fed.kept = {held.begin(), held.end()};
    for (std::size_t query = run.prompt; query < run.length(); ++query) {
      keep(run, out.rule, most_frequent(run, attended, held, query + 1), query, held);
      held.insert(static_cast<Position>(query));
      attended.push_back(held);
      out.fed.held.emplace_back(held.begin(), held.end());
    }
    return out;
  }

  void keep(const Run& run, int rule, const std::set<Position>& frequent_ones, std::size_t query,
            std::set<Position>& held) const {
    std::erase_if(held,
                  [&](Position j) { return !kept(run, rule, frequent_ones, query, width(query + 1), j); });
  }
};

/// Each row's attention: `weight(query, key)` over its sum.
template <class Weight>
Run run_of(std::size_t prompt, std::size_t decode, Weight weight) {
  Run run = blank_run({.prompt = prompt, .decode = decode, .n_lanes = 1, .group = 1});
  for (std::size_t i = 0; i < run.length(); ++i) {
    float sum = 0;
    for (std::size_t j = 0; j <= i; ++j) sum += run.p(0, i, j) = weight(i, j);
    for (std::size_t j = 0; j <= i; ++j) run.p(0, i, j) /= sum;
  }
  run.classes[0] = kSpecialToken;
  run.classes[3] = run.classes[6] = kPunctuation;
  return run;
}

/// Random rows that favour the first token, punctuation, the neighbourhood or a few columns, so that every
/// rule gets chosen.
Run structured_run(std::uint64_t seed) {
  Run run = random_run({.prompt = 5 + seed % 30, .decode = 12, .n_lanes = 1, .group = 2}, seed,
                       seed % 9 == 0 ? 2 : 1000000);
  run.classes[0] = kSpecialToken;
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < run.length(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        float liking = 1;
        if (seed % 5 == 0 && j == 0) liking = 3000;
        if (seed % 5 == 1 && run.classes[j] != 0) liking = 500;
        if (seed % 5 == 2 && j % 7 == 1) liking = 200;
        if (seed % 5 == 3 && i - j < 3) liking = 200;
        sum += run.p(head, i, j) *= liking;
      }
      for (std::size_t j = 0; j <= i; ++j) run.p(head, i, j) /= sum;
    }
  return run;
}

}  // namespace

TEST_CASE("every head takes the cheapest rule that recovers its attention, worked by hand") {
  // Ten tokens: 0 special, 3 and 6 punctuation. ceil(.2 * 10) = 2 frequent ones, the last 2 are local.
  const std::string shares = "frequent=0.2,local=0.2)";
  const auto kept = [&](const Run& run, const std::string& recovery) {
    return feed("fastgen(recovery=" + recovery + "," + shares, run, 1).kept;
  };
  // All rows attend 0 only.
  CHECK(kept(run_of(10, 0, [](auto, auto j) { return j == 0 ? 1.0F : 0.0F; }), "0.95") == Positions{0});
  // Attention on 0 and 3: special tokens recover (3 + 7/2) / 10.
  CHECK(kept(run_of(10, 0, [](auto, auto j) { return j == 0 || j == 3 ? 1.0F : 0.0F; }), "0.95") ==
        Positions{0, 3, 6});
  CHECK(kept(run_of(10, 0, [](auto, auto j) { return j == 0 || j == 3 ? 1.0F : 0.0F; }), "0.65") ==
        Positions{0});
  // Attention on 0 and 5. The second frequent one has no attention like the rest: the newest of equals.
  CHECK(kept(run_of(10, 0, [](auto, auto j) { return j == 0 || j == 5 ? 1.0F : 0.0F; }), "0.95") ==
        Positions{0, 3, 5, 6, 9});
  // Attention on the own position and the one before. Column sums are 1 (9: 1/2), seen by 10 - j rows: 8 and
  // 9 have the largest means, 1/2 each. They and the punctuation do not recover enough, but the band of two
  // does.
  CHECK(kept(run_of(10, 0, [](auto i, auto j) { return i - j < 2 ? 1.0F : 0.0F; }), "0.95") ==
        Positions{0, 3, 6, 8, 9});
  // Equal attention on all positions. Columns: 2.929 1.929 1.429 1.096 .846 .646 .479 .336 .211 .1; special
  // and punctuation 4.504; the largest means are those of 1 and 2: 7.862; the band of the others, 4 5 7 8 9,
  // is
  // .367 + .310 + .236 + .211 + .1: 9.086 of 10.
  const Run even = run_of(10, 0, [](auto, auto) { return 1.0F; });
  CHECK(kept(even, "0.95").size() == 10);
  CHECK(kept(even, "0.90") == Positions{0, 1, 2, 3, 6, 8, 9});
  CHECK(kept(even, "0.78") == Positions{0, 1, 2, 3, 6});
  CHECK(kept(even, "0.45") == Positions{0, 3, 6});
  CHECK(kept(even, "0.29") == Positions{0});
}

TEST_CASE("a head of special tokens sees each new token once, worked by hand") {
  Run run = run_of(4, 4, [](auto, auto j) { return j == 0 ? 1.0F : 0.0F; });
  run.classes[5] = kSpecialToken;
  run.classes[6] = kPunctuation;
  CHECK(feed("fastgen", run, 1).held == std::vector<Positions>{{0, 4}, {0, 5}, {0, 5, 6}, {0, 5, 7}});
  CHECK(feed("fastgen(sinks=2)", run, 1).held ==
        std::vector<Positions>{{0, 1, 4}, {0, 1, 5}, {0, 1, 5, 6}, {0, 1, 5, 7}});
}

TEST_CASE("fastgen agrees with its definition, and recovers what it promises") {
  std::vector<int> chosen(5);
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Run run = structured_run(seed);
    for (const double recovery : {0.5, 0.9, 0.97}) {
      SlowFastGen slow{.recovery = recovery};
      slow.frequent = seed % 4 == 0 ? 0.1 : 0.3;
      slow.local = seed % 3 == 0 ? 0.15 : 0.3;
      slow.sinks = seed % 7 == 0 ? 2 : 0;
      slow.raw = seed % 2 == 0;
      const SlowFastGen::Answer expected = slow.feed(run);
      const Fed got = feed(slow.text(), run, 1);
      CAPTURE(slow.text(), seed, expected.rule);
      CHECK(got.kept == expected.fed.kept);
      CHECK(got.held == expected.fed.held);
      CHECK(expected.recovered >= recovery);
      ++chosen[static_cast<std::size_t>(expected.rule)];
    }
  }
  for (const int n : chosen) CHECK(n > 10);  // the runs cover every rule
}

TEST_CASE("asking for more recovery never keeps less of the prompt, and for all of it keeps all") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Run run = structured_run(seed);
    Positions before;
    for (const char* recovery : {"0", "0.3", "0.5", "0.7", "0.8", "0.9", "0.95", "1"}) {
      const Positions kept = feed(std::string("fastgen(recovery=") + recovery + ")", run, 1).kept;
      CHECK(std::includes(kept.begin(), kept.end(), before.begin(), before.end()));
      before = kept;
    }
    CHECK(before.size() == run.prompt);
    // A smaller rule that happens to keep the whole prompt stays that rule while decoding.
    if (SlowFastGen{.recovery = 0.99999}.feed(run).rule == 4)
      CHECK(feed("fastgen(recovery=1)", run, 1).held == feed("full", run, 1).held);
  }
}

}  // namespace kvsim::policy::test::test_eviction_fastgen
