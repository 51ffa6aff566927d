#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_kvcrush {

using Positions = std::vector<Position>;

namespace {

/// The rule straight from its definition, over heavy hitters without a recent share: every quantity is
/// computed again from all rows, bits are booleans, groups are lists.
struct SlowCrush {
  double share = 0.25;
  std::size_t granularity = 1;
  std::string anchor = "zeros", pick = "first";
  bool per_query_head = false, median = false, tenure = true;

  std::vector<int> query_heads(const Run& run, int head) const {
    std::vector<int> out;
    for (int g = 0; g < (per_query_head ? 1 : run.unit.group); ++g)
      out.push_back(per_query_head ? head : head * run.unit.group + g);
    return out;
  }
  int n_heads(const Run& run) const { return per_query_head ? run.unit.n_query_heads() : run.unit.n_lanes; }

  /// Attention that a head pays to the position: prompt rows as they are, later ones over the resident
  /// positions.
  double score(const Run& run, const Attended& attended, int head, Position j) const {
    double sum = 0;
    const std::vector<int> heads = query_heads(run, head);
    for (std::size_t query = 0; query < attended.size(); ++query) {
      if (!attended[query].contains(j)) continue;
      for (const int h : heads) {
        double mass = query < run.prompt ? 1 : 0;
        if (query >= run.prompt)
          for (const Position i : attended[query])
            mass += static_cast<double>(run.p(h, query, static_cast<std::size_t>(i)));
        sum += static_cast<double>(run.p(h, query, static_cast<std::size_t>(j))) / mass /
               static_cast<double>(heads.size());
      }
    }
    return sum;
  }
  double mean_score(const Run& run, const Attended& attended, Position j) const {
    double sum = 0;
    for (int head = 0; head < n_heads(run); ++head) sum += score(run, attended, head, j);
    return sum / n_heads(run);
  }

  /// Blocks of the positions, by number.
  std::map<Position, Positions> blocks(const std::set<Position>& positions) const {
    std::map<Position, Positions> out;
    for (const Position j : positions) out[j / static_cast<Position>(granularity)].push_back(j);
    return out;
  }
  double block_score(const Run& run, const Attended& attended, const Positions& block) const {
    double sum = 0;
    for (const Position j : block) sum += mean_score(run, attended, j);
    return sum / static_cast<double>(block.size());
  }

  std::vector<bool> fingerprint(const Run& run, const Attended& attended, const Positions& block,
                                std::size_t budget) const {
    const std::size_t n_ones = median ? std::max<std::size_t>(run.prompt / 2, 1) : budget;
    std::vector<bool> out;
    for (std::size_t t = 0; t < granularity; ++t)
      for (int head = 0; head < n_heads(run); ++head) {
        bool bit = false;
        if (t < block.size()) {
          std::size_t better = 0;  // more attended, or as much and newer
          const double own = score(run, attended, head, block[t]);
          for (Position j = 0; j < static_cast<Position>(run.prompt); ++j) {
            const double other = score(run, attended, head, j);
            better += other > own || (other == own && j > block[t]) ? 1 : 0;
          }
          bit = better < n_ones;
        }
        out.push_back(bit);
      }
    return out;
  }

  Fed feed(const Run& run, std::size_t budget, const std::vector<bool>* given_anchor = nullptr) const {
    Attended attended;
    std::set<Position> all, held, representatives;
    for (std::size_t query = 0; query < run.prompt; ++query) {
      all.insert(static_cast<Position>(query));
      attended.push_back(all);
    }
    if (budget >= run.prompt) {
      held = all;
    } else {
      std::map<Position, Positions> left = blocks(all);
      const std::map<Position, Positions> whole = left;
      std::size_t room = budget - static_cast<std::size_t>(share * static_cast<double>(budget));
      std::size_t used = 0;
      while (!left.empty()) {
        auto best = left.begin();
        for (auto b = left.begin(); b != left.end(); ++b)
          if (block_score(run, attended, b->second) >= block_score(run, attended, best->second)) best = b;
        if (best->second.size() > room) break;
        room -= best->second.size();
        used += best->second.size();
        held.insert(best->second.begin(), best->second.end());
        left.erase(best);
      }
      for (const Positions& block : chosen(run, attended, left, whole, budget, used, given_anchor))
        for (const Position j : block) {
          held.insert(j);
          representatives.insert(j);
        }
    }
    Fed out;
    out.kept = {held.begin(), held.end()};
    for (std::size_t query = run.prompt; query < run.length(); ++query) {
      if (held.size() == budget) drop(run, attended, representatives, held);
      held.insert(static_cast<Position>(query));
      attended.push_back(held);
      out.held.emplace_back(held.begin(), held.end());
    }
    return out;
  }

  /// Returns the representatives of the remaining blocks.
  std::vector<Positions> chosen(const Run& run, const Attended& attended,
                                const std::map<Position, Positions>& left,
                                const std::map<Position, Positions>& whole, std::size_t budget,
                                std::size_t used, const std::vector<bool>* given_anchor) const {
    std::size_t tokens = 0;
    for (const auto& [number, block] : left) tokens += block.size();
    std::size_t count = std::min(left.size(), (budget - used) / granularity);
    if (tokens <= budget - used) count = left.size();
    const std::size_t width = granularity * static_cast<std::size_t>(n_heads(run));
    std::vector<bool> centre(width);
    for (std::size_t bit = 0; bit < width; ++bit) {
      std::size_t ones = 0;
      if (anchor == "mean")
        for (const auto& [number, block] : whole)
          ones += fingerprint(run, attended, block, budget)[bit] ? 1 : 0;
      centre[bit] = anchor == "ones" || (anchor == "alternate" && bit % 2 == 1) ||
                    (anchor == "mean" && static_cast<double>(ones) / static_cast<double>(whole.size()) > 0.5);
    }
    if (given_anchor) centre = *given_anchor;
    std::vector<std::pair<std::size_t, Positions>> sorted;
    for (const auto& [number, block] : left) {
      const std::vector<bool> print = fingerprint(run, attended, block, budget);
      std::size_t distance = 0;
      for (std::size_t bit = 0; bit < width; ++bit) distance += print[bit] != centre[bit] ? 1 : 0;
      sorted.emplace_back(distance, block);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Positions> out;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t n = sorted.size();
      std::size_t at = pick == "first" ? i * n / count : count == 1 ? 0 : i * (n - 1) / (count - 1);
      if (tokens <= budget - used) at = i;
      out.push_back(sorted[at].second);
    }
    return out;
  }

  /// Evicts the lowest block without a representative; if all have one, the oldest of them.
  void drop(const Run& run, const Attended& attended, std::set<Position>& representatives,
            std::set<Position>& held) const {
    const std::map<Position, Positions> present = blocks(held);
    const Positions* victim = nullptr;
    double lowest = 0;
    for (const bool tenured : {false, true}) {
      for (const auto& [block, members] : present) {
        const bool stays = std::any_of(members.begin(), members.end(),
                                       [&](Position j) { return tenure && representatives.contains(j); });
        if (stays != tenured) continue;
        const double score = tenured ? 0 : block_score(run, attended, members);
        if (victim == nullptr || score < lowest) {
          victim = &members;
          lowest = score;
        }
      }
      if (victim != nullptr) break;
    }
    for (const Position j : *victim) {
      held.erase(j);
      representatives.erase(j);
    }
  }

  std::string text() const {
    return "kvcrush(base=h2o(recent=0),share=" + std::to_string(share) +
           ",granularity=" + std::to_string(granularity) + ",anchor=" + anchor + ",pick=" + pick +
           ",bits=" + (per_query_head ? "query_head" : "kv_head") +
           ",threshold=" + (median ? "median" : "budget") + ",tenure=" + (tenure ? "true" : "false") + ")";
  }
};

/// Keys along the first axis, so that l2_norm ranks by `norms` (smallest is best).
Run run_of_norms(const std::vector<std::vector<float>>& norms, std::size_t decode) {
  const std::size_t prompt = norms[0].size() - decode;
  Run run = random_run(
      {.prompt = prompt, .decode = decode, .n_lanes = static_cast<int>(norms.size()), .group = 1}, 1);
  for (std::size_t lane = 0; lane < norms.size(); ++lane)
    for (std::size_t j = 0; j < norms[lane].size(); ++j) {
      run.keys[lane][3 * j] = norms[lane][j];
      run.keys[lane][3 * j + 1] = run.keys[lane][3 * j + 2] = 0;
    }
  return run;
}

std::string refusal(const std::string& text) {
  try {
    parse_composition(text, builtin());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("kvcrush keeps the important and representatives of the rest, worked by hand") {
  // Key norms of two heads. Their means rank 0 (2/2) and 2 (5/2) first: the importance half of 4 tokens.
  // Head 0 alone would keep the four smallest: 0 1 2 3, head 1: 0 2 4 5. Fingerprints of the others:
  //   1: 10   3: 10   4: 01   5: 01   6: 00   7: 00
  const Run run = run_of_norms({{1, 2, 3, 4, 5, 6, 7, 8}, {1, 8, 2, 7, 4, 3, 6, 5}}, 0);
  const auto kept = [&](const std::string& how) {
    return feed("kvcrush(base=l2_norm,share=0.5," + how + ")", run, 4).kept;
  };
  // Anchor 00: distances 1 1 1 1 0 0, sorted 6 7 1 | 3 4 5.
  CHECK(kept("anchor=zeros,pick=first") == Positions{0, 2, 3, 6});
  CHECK(kept("anchor=zeros,pick=ends") == Positions{0, 2, 5, 6});
  // Anchor 11: 1 1 1 1 2 2, sorted 1 3 4 | 5 6 7.
  CHECK(kept("anchor=ones,pick=first") == Positions{0, 1, 2, 5});
  // Anchor 01: 2 2 0 0 1 1, sorted 4 5 6 | 7 1 3.
  CHECK(kept("anchor=alternate,pick=first") == Positions{0, 2, 4, 7});
  // Each head has 4 ones among 8 tokens: exactly half, so the mean is 00.
  CHECK(kept("anchor=mean,pick=first") == Positions{0, 2, 3, 6});
  // A random one of 6 7 1 and one of 3 4 5.
  const Positions random = kept("anchor=zeros,pick=random");
  REQUIRE(random.size() == 4);
  CHECK(std::count_if(random.begin(), random.end(), [](Position j) { return j == 6 || j == 7 || j == 1; }) ==
        1);
  // Pages of two: means 0: (2+10)/4 = 3, 1: (5+11)/4 = 4, 2: 18/4, 3: 26/4. One page is important, one of the
  // other three represents them. Prints 1: 11 10, 2: 01 01, 3: 00 00; nearest to 0000 is page 3, to 1111 page
  // 1, to 0101 page 2.
  CHECK(kept("granularity=2,anchor=zeros,pick=first") == Positions{0, 1, 6, 7});
  CHECK(kept("granularity=2,anchor=ones,pick=first") == Positions{0, 1, 2, 3});
  CHECK(kept("granularity=2,anchor=alternate,pick=first") == Positions{0, 1, 4, 5});
}

TEST_CASE("representatives are evicted last, worked by hand") {
  // Prompt as above and three more tokens, of norms 9, 1 and 1 in both heads. Kept: 0 2 important, 3 6
  // represent. 8 arrives at a full unit: 2 has the larger norms of the two important ones and is evicted. 9
  // evicts 8. 10 evicts 9 or 0, both of norm 1: the older.
  const Run run = run_of_norms({{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1}, {1, 8, 2, 7, 4, 3, 6, 5, 9, 1, 1}}, 3);
  const std::string how = "base=l2_norm,share=0.5,anchor=zeros,pick=first";
  CHECK(feed("kvcrush(" + how + ")", run, 4).held ==
        std::vector<Positions>{{0, 3, 6, 8}, {0, 3, 6, 9}, {3, 6, 9, 10}});
  // Without tenure the representatives have the largest norms: 6, then 8, then 3.
  CHECK(feed("kvcrush(" + how + ",tenure=false)", run, 4).held ==
        std::vector<Positions>{{0, 2, 3, 8}, {0, 2, 3, 9}, {0, 2, 9, 10}});
  CHECK(feed("kvcrush(" + how + ",decode=append)", run, 4).held ==
        std::vector<Positions>{{0, 2, 3, 6, 8}, {0, 2, 3, 6, 8, 9}, {0, 2, 3, 6, 8, 9, 10}});
}

TEST_CASE("kvcrush agrees with its definition") {
  std::uint64_t seed = 0;
  for (const double share : {0.25, 0.6, 1.0})
    for (const std::size_t granularity : {1U, 3U, 4U})
      for (const char* anchor : {"zeros", "ones", "alternate", "mean"})
        for (const char* pick : {"first", "ends"})
          for (int variant = 0; variant < 4; ++variant) {
            ++seed;
            SlowCrush slow{.share = share, .granularity = granularity, .anchor = anchor, .pick = pick};
            slow.per_query_head = variant % 2 == 1;
            slow.median = variant >= 2;
            slow.tenure = seed % 3 != 0;
            const Run run = random_run({.prompt = 9 + seed % 14,
                                        .decode = 7,
                                        .n_lanes = 1 + static_cast<int>(seed % 3),
                                        .group = 1 + static_cast<int>(seed % 2)},
                                       seed);
            const Composition fast = parse_composition(slow.text(), builtin());
            for (std::size_t budget = fast.floor(); budget < run.prompt + 3; budget += 3) {
              CAPTURE(slow.text(), seed, budget);
              const Fed expected = slow.feed(run, budget), got = feed(fast, run, budget);
              CHECK(got.kept == expected.kept);
              CHECK(got.held == expected.held);
            }
          }
}

TEST_CASE("a random anchor is a valid anchor, and the same for all budgets") {
  const Run run = random_run({.prompt = 30, .decode = 0, .n_lanes = 3, .group = 1}, 5);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Run seeded = run;
    seeded.unit.seed = seed;
    std::set<unsigned> possible = {0, 1, 2, 3, 4, 5, 6, 7};
    for (std::size_t budget = 4; budget < 28; budget += 2) {
      const SlowCrush slow{.share = 0.5};
      const Fed got = feed("kvcrush(base=h2o(recent=0),share=0.5,pick=first)", seeded, budget);
      for (unsigned anchor = 0; anchor < 8; ++anchor) {
        const std::vector<bool> bits = {(anchor & 1) != 0, (anchor & 2) != 0, (anchor & 4) != 0};
        if (slow.feed(run, budget, &bits).kept != got.kept) possible.erase(anchor);
      }
    }
    CHECK(possible.size() == 1);
  }
}

TEST_CASE("without representatives kvcrush is its base, one set per layer") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = random_run({.prompt = 26, .decode = 20, .n_lanes = 1 + static_cast<int>(seed % 3)}, seed);
    for (const std::string granularity : {"1", "4"})
      for (const std::string base : {"h2o(", "h2o(recent=0,feedback=raw,", "tova(window=2,sinks=1,",
                                     "snapkv(window=3,", "h2o(phase=post,"}) {
        const std::string alone = base + "unit=layer,granularity=" + granularity + ")",
                          wrapped =
                              "kvcrush(base=" + base + "unit=layer),share=0,granularity=" + granularity + ")";
        const std::size_t floor = parse_composition(wrapped, builtin()).floor();
        for (std::size_t budget = floor; budget < 30; ++budget) {
          CAPTURE(wrapped, seed, budget);
          const Fed a = feed(alone, run, budget), b = feed(wrapped, run, budget);
          CHECK(a.kept == b.kept);
          CHECK(a.held == b.held);
        }
      }
  }
}

TEST_CASE("what the base protects is kept whatever the share") {
  const Run run = random_run({.prompt = 40, .decode = 10, .n_lanes = 2}, 3);
  for (const std::string share : {"0", "0.5", "1"})
    for (const std::size_t granularity : {1U, 4U})
      for (std::size_t budget = 20; budget < 40; budget += 5) {
        const Fed fed = feed("kvcrush(base=tova(sinks=2,window=5),share=" + share +
                                 ",granularity=" + std::to_string(granularity) + ")",
                             run, budget);
        const std::set<Position> kept(fed.kept.begin(), fed.kept.end());
        for (const Position j : {0, 1, 35, 36, 37, 38, 39}) CHECK(kept.contains(j));
        if (granularity == 1) CHECK(kept.size() == budget);
        for (std::size_t s = 0; s < fed.held.size(); ++s)
          for (Position back = 0; back < 5; ++back)
            CHECK(std::count(fed.held[s].begin(), fed.held[s].end(), 40 + static_cast<Position>(s) - back) ==
                  1);
      }
}

TEST_CASE("at half of the prompt, the median is the budget") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 24, .decode = 6, .n_lanes = 3}, seed);
    const std::string base = "kvcrush(base=h2o(recent=0)";
    CHECK(feed(base + ")", run, 12).held == feed(base + ",threshold=median)", run, 12).held);
  }
}

TEST_CASE("k-means takes one of each cluster of keys, or of fingerprints") {
  // Norm 1 is important (0 and 1). The others lie in three clusters along the axis; with share 0.6 of 5 there
  // are three representatives, the middle member of each cluster where the clusters are found.
  const Run run = run_of_norms({{1, 1, 50, 51, 52, 100, 101, 102, 150, 151, 152}}, 0);
  int found = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Run seeded = run;
    seeded.unit.seed = seed;
    const Positions kept = feed("kvcrush(base=l2_norm,share=0.6,cluster=kmeans_keys)", seeded, 5).kept;
    CHECK(kept.size() == 5);
    found += kept == Positions{0, 1, 3, 6, 9} ? 1 : 0;
  }
  CHECK(found >= 5);
  // Two kinds of fingerprints are left at budget 6 (four important of norms 1 1 50 51, then 52 and 100 are
  // ones as well): a representative of either kind, the first of equals.
  CHECK(feed("kvcrush(base=l2_norm,share=0.34,cluster=kmeans_bits)", run, 6).kept.size() == 6);
}

TEST_CASE("kvcrush refuses unsuitable bases") {
  using Catch::Contains;
  CHECK_THAT(refusal("kvcrush(base=h2o(granularity=8))"), Contains("ranks tokens"));
  CHECK_THAT(refusal("kvcrush(base=h2o(prompt=stream))"), Contains("token by token"));
  CHECK_THAT(refusal("kvcrush(base=window)"), Contains("does not rank by a score"));
  CHECK_THAT(refusal("kvcrush(base=kvcrush)"), Contains("does not rank by a score"));
  CHECK(refusal("kvcrush(base=snapkv(window=8),share=0.75)+pyramid") == "accepted");
}

TEST_CASE("on one head and without representatives, kvcrush is its base") {
  for (const std::string base : {"h2o", "tova", "snapkv", "l2_norm(sinks=2)", "random(redraw=true)", "a2sf",
                                 "keyformer", "vatp", "scissorhands(prompt=rank)"}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      // One query head, or one KV head asked as a whole.
      const int group = 1 + static_cast<int>(seed % 2);
      const std::string wrapped =
          "kvcrush(base=" + base + ",share=0,bits=" + (group == 1 ? "query_head" : "kv_head") + ")";
      const Run run = random_run({.prompt = 45, .decode = 20, .n_lanes = 1, .group = group}, seed,
                                 seed % 3 == 0 ? 3 : 1000000);
      const std::size_t floor = parse_composition(wrapped, builtin()).floor();
      for (const std::size_t budget : {floor, floor + 5, floor + 20}) {
        CAPTURE(wrapped, seed, budget);
        const Fed alone = feed(base, run, budget), inside = feed(wrapped, run, budget);
        CHECK(alone.kept == inside.kept);
        CHECK(alone.held == inside.held);
      }
    }
  }
}

TEST_CASE("every eviction that ranks the prompt can be kvcrush's base") {
  std::size_t n_bases = 0;
  for (const PolicySpec& spec : builtin().policies()) {
    if (!spec.scored() || !complete(spec)) continue;
    const std::string wrapped = "kvcrush(base=" + spec.name + ",granularity=3)";
    if (refusal(wrapped) != "accepted") continue;
    ++n_bases;
    const Run run = random_run({.prompt = 50, .decode = 20, .n_lanes = 2, .group = 2}, 7);
    const std::size_t floor = parse_composition(wrapped, builtin()).floor();
    for (std::size_t budget = floor; budget < floor + 10; ++budget) {
      CAPTURE(wrapped, budget);
      const Positions kept = feed(wrapped, run, budget).kept;
      // The last block holds two tokens, and a representative takes the room of three.
      const std::size_t missing = kept.back() == 49 ? 1 : 0;
      CHECK(kept.size() + missing + 3 > std::min<std::size_t>(budget, 50));
    }
  }
  CHECK(n_bases >= 5);
}

TEST_CASE("a recent share of kvcrush's base is a share of the budget beside the representatives") {
  // 25 % of 40 are representatives; half of the 30 that are left is recent.
  const auto protection =
      parse_composition("kvcrush(base=h2o(recent=0.5),share=0.25)", builtin()).eviction.protection();
  CHECK(protection(40, 100).window == 15);
  const Run run = random_run({.prompt = 100, .decode = 0, .n_lanes = 2, .group = 2}, 5);
  const Fed fed = feed("kvcrush(base=h2o(recent=0.5),share=0.25)", run, 40);
  for (Position j = 85; j < 100; ++j) CHECK(std::find(fed.kept.begin(), fed.kept.end(), j) != fed.kept.end());
}

TEST_CASE("kvcrush has one bit per query head unless told otherwise") {
  CHECK(parse_composition("kvcrush", builtin()).params ==
        parse_composition("kvcrush(bits=query_head)", builtin()).params);
  CHECK(parse_composition("kvcrush.kv_heads", builtin()).params ==
        parse_composition("kvcrush(bits=kv_head)", builtin()).params);
}

}  // namespace kvsim::policy::test::test_eviction_kvcrush
