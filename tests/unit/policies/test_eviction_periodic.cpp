#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_periodic {

using Positions = std::vector<Position>;

namespace {

double product(const std::vector<float>& a, std::size_t i, const std::vector<float>& b, std::size_t j) {
  double sum = 0;
  for (std::size_t c = 0; c < 3; ++c)
    sum += static_cast<double>(a[i * 3 + c]) * static_cast<double>(b[j * 3 + c]);
  return sum;
}

/// What the softmax of a row takes of a key, not normalised.
double weight_of(const Run& run, int head, std::size_t query, std::size_t key) {
  double x = kScale * product(run.queries[static_cast<std::size_t>(head)], query,
                              run.keys[static_cast<std::size_t>(head / run.unit.group)], key);
  if (run.cap != 0) x = run.cap * std::tanh(x / run.cap);
  return std::exp(x);
}
/// The same of the head's sink.
double weight_of_sink(const Run& run, int head) {
  return run.sinks.empty() ? 0 : std::exp(static_cast<double>(run.sinks[static_cast<std::size_t>(head)]));
}

/// Keys and queries all around the origin, and the attention that follows from them.
Run attending_run(const Shape& shape, std::uint64_t seed, double cap = 0, std::vector<float> sinks = {}) {
  Run run = random_run(shape, seed);
  run.cap = cap;
  run.sinks = std::move(sinks);
  for (auto* tensor : {&run.keys, &run.queries})
    for (std::vector<float>& rows : *tensor)
      for (float& x : rows) x = 6 * x - 3;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    for (std::size_t i = 0; i < run.length(); ++i) {
      double sum = weight_of_sink(run, head);
      for (std::size_t j = 0; j <= i; ++j) sum += weight_of(run, head, i, j);
      for (std::size_t j = 0; j <= i; ++j)
        run.p(head, i, j) = static_cast<float>(weight_of(run, head, i, j) / sum);
    }
  }
  return run;
}

/// The prompt is cut to the budget, later a full cache to budget - interval, both by `score` of what is held.
template <class Score>
Fed slow(const Run& run, std::size_t budget, std::size_t interval, std::size_t window, bool keeps_prompt,
         Score score) {
  return feed_cutting(
      [&](const Attended& /*attended*/, std::set<Position>& held, std::size_t size, Position /*newest*/) {
        const std::size_t target = size == budget ? budget : budget - interval;
        const Positions at(held.begin(), held.end());
        const std::vector<double> scores = score(at);
        std::vector<std::size_t> order(at.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const auto place = [&](std::size_t i) {
          const bool newest = i + window >= at.size();
          const bool pinned = keeps_prompt && size != budget && at[i] < static_cast<Position>(run.prompt);
          return newest ? 2 : pinned ? 1 : 0;
        };
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
          if (place(a) != place(b)) return place(a) > place(b);
          return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
        });
        held.clear();
        for (std::size_t i = 0; i < target; ++i) held.insert(at[order[i]]);
      },
      run, budget);
}

/// SnapKV's score without pooling, of one lane: attention of the last rows among `at`.
std::vector<double> attended(const Run& run, const Positions& at, std::size_t window) {
  std::vector<double> out(at.size());
  for (int head = 0; head < run.unit.group; ++head)
    for (std::size_t i = at.size() - window; i < at.size(); ++i) {
      double sum = weight_of_sink(run, head);
      const auto weight = [&](std::size_t j) {
        return weight_of(run, head, static_cast<std::size_t>(at[i]), static_cast<std::size_t>(at[j]));
      };
      for (std::size_t j = 0; j <= i; ++j) sum += weight(j);
      for (std::size_t j = 0; j <= i; ++j) out[j] += weight(j) / sum;
    }
  return out;
}

/// The largest attention of any head in each of the last rows, mean over these.
std::vector<double> peaks(const Run& run, const Positions& at, std::size_t window) {
  std::vector<double> out(at.size());
  for (std::size_t i = at.size() - window; i < at.size(); ++i)
    for (std::size_t j = 0; j + window < at.size(); ++j) {
      double most = 0;
      for (int head = 0; head < run.unit.group; ++head) {
        double sum = 0;
        const auto weight = [&](std::size_t k) {
          return weight_of(run, head, static_cast<std::size_t>(at[i]), static_cast<std::size_t>(at[k]));
        };
        for (std::size_t k = 0; k <= i; ++k) sum += weight(k);
        most = std::max(most, weight(j) / sum);
      }
      out[j] += most / static_cast<double>(window);
    }
  return out;
}

/// R-KV's score of one lane without pooling, from whole matrices.
std::vector<double> unlike(const Run& run, const Positions& at, std::size_t window, double lambda) {
  const std::size_t n = at.size(), older = n - window;
  const auto place = [&](std::size_t i) { return static_cast<std::size_t>(at[i]); };
  std::vector<double> out(n), like(n);
  for (std::size_t i = older; i < n; ++i) {
    std::vector<double> logits(older, -1e300);
    for (int head = 0; head < run.unit.group; ++head)
      for (std::size_t j = 0; j < older; ++j)
        logits[j] = std::max(logits[j], kScale * product(run.queries[static_cast<std::size_t>(head)],
                                                         place(i), run.keys[0], place(j)));
    double sum = 0;
    for (const double x : logits) sum += std::exp(x);
    for (std::size_t j = 0; j < older; ++j)
      out[j] += lambda * std::exp(logits[j]) / sum / static_cast<double>(window);
  }
  std::vector<std::vector<double>> cosines(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      if (i != j)
        cosines[i][j] = product(run.keys[0], place(i), run.keys[0], place(j)) /
                        std::sqrt(product(run.keys[0], place(i), run.keys[0], place(i)) *
                                  product(run.keys[0], place(j), run.keys[0], place(j)));
    std::size_t newest = n - 1;
    while (newest > 0 && cosines[i][newest] <= 0.5) --newest;
    cosines[i][newest] = 0;
  }
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) like[j] += cosines[i][j] / static_cast<double>(n);
    sum += std::exp(like[j]);
  }
  for (std::size_t j = 0; j < older; ++j) out[j] -= (1 - lambda) * std::exp(like[j]) / sum;
  return out;
}

/// Keys along one axis, of these lengths.
Run of_lengths(std::size_t prompt, const std::vector<float>& lengths) {
  Run run = blank_run({.prompt = prompt, .decode = lengths.size() - prompt, .n_lanes = 1, .group = 1});
  for (std::size_t i = 0; i < lengths.size(); ++i) run.keys[0][i * 3] = lengths[i];
  return run;
}

const std::string kShortest = "base=l2_norm(sinks=0,window=0)";

}  // namespace

TEST_CASE("a full cache is cut by an interval and grows again, by hand") {
  // Keys of small norm stay: 1 and 3 of the prompt; then 4 and 5 join; of 1, 3, 4, 5 the shortest are 1
  // and 3.
  const Run run = of_lengths(4, {5, 1, 4, 2, 3, 6, 1});
  const Fed fed = feed("periodic(" + kShortest + ",interval=2)", run, 4);
  CHECK(fed.kept == Positions{0, 1, 2, 3});
  CHECK(fed.held == std::vector<Positions>{{1, 3, 4}, {1, 3, 4, 5}, {1, 3, 6}});
}

TEST_CASE("the prompt's tokens leave after all of the answer's, by hand") {
  const Run run = of_lengths(3, {5, 9, 8, 3, 2, 1, 4, 7});
  const Fed fed = feed("periodic(" + kShortest + ",interval=2,prompt=kept)", run, 5);
  CHECK(fed.held ==
        std::vector<Positions>{{0, 1, 2, 3}, {0, 1, 2, 3, 4}, {0, 1, 2, 5}, {0, 1, 2, 5, 6}, {0, 1, 2, 7}});
}

TEST_CASE("prompt=apart shows the base the answer alone") {
  // The base would keep the prompt's newest two tokens and needs one slot beside the arriving token.
  const Run lengths = of_lengths(8, {5, 9, 8, 3, 2, 1, 4, 7, 6, 2});
  CHECK(feed("periodic(base=snapkv(window=2),interval=4,prompt=apart)", lengths, 9).held ==
        std::vector<Positions>{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2, 3, 8, 9}});
  // The base's sinks are those of the text, not the answer's first tokens.
  CHECK(
      feed("periodic(base=l2_norm(sinks=2),interval=2,prompt=apart)", of_lengths(3, {5, 9, 8, 7, 6, 1, 2}), 6)
          .held.back() == Positions{0, 1, 2, 5, 6});
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = attending_run({.prompt = 5, .decode = 30, .n_lanes = 1, .group = 2}, seed);
    const std::size_t interval = 1 + seed % 4, window = 2;
    const Fed expected = feed_cutting(
        [&](const Attended& /*attended*/, std::set<Position>& held, std::size_t /*size*/,
            Position /*newest*/) {
          const Positions answer(held.lower_bound(static_cast<Position>(run.prompt)), held.end());
          const std::vector<double> scores = attended(run, answer, window);
          std::vector<std::pair<double, Position>> order;
          for (std::size_t i = 0; i + window < answer.size(); ++i) order.emplace_back(scores[i], answer[i]);
          std::sort(order.begin(), order.end());
          for (std::size_t i = 0; i < interval; ++i) held.erase(order[i].second);
        },
        run, 12);
    CHECK(feed("periodic(base=snapkv(window=2,pool=none),prompt=apart,interval=" + std::to_string(interval) +
                   ")",
               run, 12)
              .held == expected.held);
  }
}

TEST_CASE("rounds cut to a share of what was written, by hand") {
  // Of the answer 3, 2, 1, 4, 7, 6 the shorter half stays after every two tokens, or of all tokens the
  // shorter half.
  const Run run = of_lengths(3, {5, 9, 8, 3, 2, 1, 4, 7, 6, 1});
  const std::string rule = "periodic(" + kShortest + ",interval=2,share=0.5";
  CHECK(feed(rule + ",prompt=apart)", run, 20).held == std::vector<Positions>{{0, 1, 2, 3},
                                                                              {0, 1, 2, 3, 4},
                                                                              {0, 1, 2, 4, 5},
                                                                              {0, 1, 2, 4, 5, 6},
                                                                              {0, 1, 2, 4, 5, 7},
                                                                              {0, 1, 2, 4, 5, 7, 8},
                                                                              {0, 1, 2, 4, 5, 8, 9}});
  CHECK(feed(rule + ",prompt=kept)", run, 20).held == feed(rule + ",prompt=apart)", run, 20).held);
  CHECK(feed(rule + ")", run, 20).held == std::vector<Positions>{{0, 1, 2, 3},
                                                                 {0, 1, 2, 3, 4},
                                                                 {3, 4, 5},
                                                                 {3, 4, 5, 6},
                                                                 {3, 4, 5, 7},
                                                                 {3, 4, 5, 7, 8},
                                                                 {3, 4, 5, 8, 9}});
  // In between a full cache loses one token.
  const Fed full = feed("periodic(" + kShortest + ",interval=10,share=0.5,prompt=apart)", run, 5);
  CHECK(full.held[2] == Positions{0, 1, 2, 4, 5});
  CHECK(full.held[3] == Positions{0, 1, 2, 5, 6});
  CHECK(full.held[4] == Positions{0, 1, 2, 5, 7});
}

TEST_CASE("a round leaves the window and a share of what is before it") {
  // After 2 + 4 tokens of the answer, two of the four and the window of two stay beside the prompt.
  const Run run = attending_run({.prompt = 5, .decode = 12, .n_lanes = 1, .group = 2}, 3);
  const Fed fed =
      feed("periodic(base=snapkv(window=2,pool=none),interval=4,share=0.5,prompt=apart)", run, 40);
  for (std::size_t step = 0; step < 12; ++step)
    CHECK(fed.held[step].size() == 6 + step - (step < 6 ? 0 : step < 10 ? 2 : 4));
}

TEST_CASE("the newest of keys that are alike counts as unlike, by hand") {
  // Keys 0, 1 and 2 are one, the window is another. Row 0 spares 2, row 1 spares 2, row 2 spares 1: the
  // columns hold 2, 1 and 0.
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 1});
  for (std::size_t i = 0; i < 3; ++i) run.keys[0][i * 3] = 1;
  run.keys[0][3 * 3 + 1] = 1;
  CHECK(feed("redundancy(window=1,lambda=0)", run, 3).kept == Positions{1, 2, 3});
  CHECK(feed("redundancy(window=1,lambda=0)", run, 2).kept == Positions{2, 3});
}

TEST_CASE("redundancy reads attention under the model's cap, by hand") {
  // Logits of three rows on two keys: (10, 0), (0, .6), (0, .6). Their shares add up to 1.71 and 1.29; with a
  // cap of 1 logits are 1 and .54, and shares 1.47 and 1.53.
  Run run = blank_run({.prompt = 5, .decode = 0, .n_lanes = 1, .group = 1});
  run.keys[0][0] = 20;
  run.keys[0][3 + 1] = 1.2F;
  run.queries[0][2 * 3] = run.queries[0][3 * 3 + 1] = run.queries[0][4 * 3 + 1] = 1;
  CHECK(feed("redundancy(window=3,lambda=1,pool=none)", run, 4).kept == Positions{0, 2, 3, 4});
  run.cap = 1;
  CHECK(feed("redundancy(window=3,lambda=1,pool=none)", run, 4).kept == Positions{1, 2, 3, 4});
}

TEST_CASE("periodic cuts as its definition does") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = attending_run({.prompt = 14, .decode = 30, .n_lanes = 1, .group = 2}, seed);
    const std::size_t budget = 8 + seed % 7, interval = 1 + seed % 4;
    const std::string when = ",interval=" + std::to_string(interval);
    for (const bool kept : {false, true}) {
      const std::string rule = when + (kept ? ",prompt=kept)" : ")");
      CHECK(feed("periodic(base=snapkv(window=3,pool=none)" + rule, run, budget).held ==
            slow(run, budget, interval, 3, kept, [&](const Positions& at) {
              return attended(run, at, 3);
            }).held);
      CHECK(feed("periodic(base=redundancy(window=2,pool=none,lambda=0.6)" + rule, run, budget).held ==
            slow(run, budget, interval, 2, kept, [&](const Positions& at) {
              return unlike(run, at, 2, 0.6);
            }).held);
    }
  }
}

TEST_CASE("a token's score from one cut counts at the next, by hand") {
  // Token 3 sees tokens 0, 1 and 2 as 4 : 2 : 1; the prompt is cut to 0, 1 and the window, token 3. As token
  // 4 comes, of 0 and 1, shares 1 and 1/2 of the largest, 0 stays. As token 5 comes, token 4 has seen 0 and 3
  // as 1 : 2: shares 1/2 and 1, so 3 stays. If .8 of each earlier sum is added, 0 has 1, 1.8 and 1.94; if .3
  // is, 1, 1.3 and .89.
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 1});
  const float first[4] = {4, 2, 1, 1};
  for (std::size_t j = 0; j < 4; ++j) {
    run.keys[0][j * 3] = std::log(first[j]);
    run.p(0, 3, j) = first[j] / 8;
  }
  run.keys[0][3 * 3 + 1] = std::log(2.0F);
  run.queries[0][3 * 3] = run.queries[0][4 * 3 + 1] = static_cast<float>(1 / kScale);
  const auto held = [&](const std::string& rule) {
    return feed("periodic(base=group_peaks(window=1),interval=1" + rule + ")", run, 3).held;
  };
  CHECK(held("") == std::vector<Positions>{{0, 3, 4}, {3, 4, 5}});
  CHECK(held(",carry=sum,fading=0.8") == std::vector<Positions>{{0, 3, 4}, {0, 4, 5}});
  CHECK(held(",carry=sum,fading=0.3") == std::vector<Positions>{{0, 3, 4}, {3, 4, 5}});
  CHECK(held(",carry=max") == std::vector<Positions>{{0, 3, 4}, {3, 4, 5}});
}

TEST_CASE("periodic carries scores as its definition does") {
  std::size_t differ = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = attending_run({.prompt = 16, .decode = 30, .n_lanes = 1, .group = 2}, seed);
    const std::size_t budget = 8 + seed % 7, interval = 1 + seed % 4;
    for (const std::string carry : {"max", "mean", "sum"}) {
      std::map<Position, double> before;
      const Fed expected = slow(run, budget, interval, 3, false, [&](const Positions& at) {
        std::vector<double> scores = peaks(run, at, 3);
        const double most = *std::max_element(scores.begin(), scores.end());
        for (std::size_t i = 0; i + 3 < at.size(); ++i) {
          double& score = scores[i] /= most;
          if (const auto known = before.find(at[i]); known != before.end())
            score = carry == "max"    ? std::max(0.6 * known->second, score)
                    : carry == "mean" ? 0.6 * known->second + 0.4 * score
                                      : 0.6 * known->second + score;
          before[at[i]] = score;
        }
        return scores;
      });
      const std::string rule = "periodic(base=group_peaks(window=3),interval=" + std::to_string(interval);
      CAPTURE(seed, carry);
      CHECK(feed(rule + ",fading=0.6,carry=" + carry + ")", run, budget).held == expected.held);
      if (feed(rule + ")", run, budget).held != expected.held) ++differ;
      CHECK(feed(rule + ",fading=0,carry=" + carry + ")", run, budget).held ==
            feed(rule + ")", run, budget).held);
    }
  }
  CHECK(differ > 10);
}

TEST_CASE("periodic computes rows with the model's cap and sinks") {
  // The heads' sinks take nearly all of a row and next to nothing, so that heads weigh otherwise than
  // without.
  std::size_t differ = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Shape shape{.prompt = 14, .decode = 30, .n_lanes = 1, .group = 2};
    const std::size_t budget = 8 + seed % 7, interval = 1 + seed % 4;
    const std::string policy =
        "periodic(base=snapkv(window=3,pool=none),interval=" + std::to_string(interval) + ")";
    std::vector<std::vector<Positions>> held;
    for (const auto& [cap, sinks] :
         {std::pair<double, std::vector<float>>{0, {}}, {1.5, {}}, {0, {4, -4}}, {1.5, {4, -4}}}) {
      const Run run = attending_run(shape, seed, cap, sinks);
      held.push_back(feed(policy, run, budget).held);
      CHECK(held.back() == slow(run, budget, interval, 3, false, [&](const Positions& at) {
                             return attended(run, at, 3);
                           }).held);
      differ += held.back() != held.front();
    }
  }
  CHECK(differ > 12);  // of 36: the test would see whether cap and sinks count
}

TEST_CASE("an answer that fits is never cut, and the prompt is cut as by the base") {
  const Run run = attending_run({.prompt = 14, .decode = 6, .n_lanes = 2, .group = 2}, 3);
  for (const std::string base : {"snapkv(window=2)", "keydiff", "tova", "lagkv(sinks=1,lag=2)", "random"}) {
    CHECK(feed("periodic(base=" + base + ",interval=4)", run, 20).held.back().size() == 20);
    CHECK(feed("periodic(base=" + base + ",interval=4)", run, 9).kept == feed(base, run, 9).kept);
  }
}

TEST_CASE("another policy may cut the prompt, by hand") {
  // All keys point one way, so that keydiff keeps the newest; then the shortest stay.
  const Run run = of_lengths(4, {1, 5, 4, 2, 3, 6, 1});
  const std::string rule = "periodic(" + kShortest + ",interval=2";
  CHECK(feed(rule + ")", run, 3).held == std::vector<Positions>{{0, 4}, {0, 4, 5}, {0, 6}});
  const Fed other = feed(rule + ",first=keydiff.kvpress)", run, 3);
  CHECK(other.kept == Positions{1, 2, 3});
  CHECK(other.held == std::vector<Positions>{{3, 4}, {3, 4, 5}, {3, 6}});
  CHECK(feed(rule + ",first=base)", run, 3).held == feed(rule + ")", run, 3).held);
  CHECK_THROWS_WITH(parse_composition("periodic(base=tova,first=keydiff)", builtin()),
                    Catch::Contains("ranks single KV heads"));
  // What ranks layers by itself ranks the base's KV heads here.
  const Run two = attending_run({.prompt = 14, .decode = 6, .n_lanes = 1, .group = 2}, 3);
  CHECK(feed("periodic(base=snapkv(window=2),first=tova)", two, 9).kept ==
        feed("tova(unit=lane)", two, 9).kept);
}

TEST_CASE("every chunk keeps its share, by hand and as its definition says") {
  const Run run = of_lengths(6, {1, 2, 3, 9, 8, 7});
  const std::string shortest = "chunked(" + kShortest + ",size=3)";
  CHECK(feed(shortest, run, 2).kept == Positions{0, 5});
  CHECK(feed(shortest, run, 4).kept == Positions{0, 1, 4, 5});
  CHECK(feed("chunked(" + kShortest + ",size=6)", run, 2).kept == Positions{0, 1});
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run random = attending_run({.prompt = 24, .decode = 3, .n_lanes = 1, .group = 2}, seed);
    const std::size_t of_each = 3 + seed % 4;
    Positions expected;
    for (Position begin = 0; begin < 24; begin += 8) {
      Positions chunk(8);
      std::iota(chunk.begin(), chunk.end(), begin);
      const std::vector<double> scores = attended(random, chunk, 2);
      std::vector<std::pair<double, Position>> order;
      for (std::size_t i = 0; i < 6; ++i) order.emplace_back(scores[i], chunk[i]);
      std::sort(order.rbegin(), order.rend());
      for (std::size_t i = 0; i + 2 < of_each; ++i) expected.push_back(order[i].second);
      expected.insert(expected.end(), chunk.end() - 2, chunk.end());
    }
    std::sort(expected.begin(), expected.end());
    const Fed fed = feed("chunked(base=snapkv(window=2,pool=none),size=8)", random, 3 * of_each);
    CHECK(fed.kept == expected);
    CHECK(fed.held.back().size() == 3 * of_each + 3);
  }
}

TEST_CASE("block after block the prompt is cut, by hand and as its definition says") {
  CHECK(feed("blockwise(" + kShortest + ",size=2)", of_lengths(7, {5, 1, 4, 2, 3, 6, 1}), 2).kept ==
        Positions{1, 6});
  std::size_t differ = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = attending_run({.prompt = 25, .decode = 2, .n_lanes = 1, .group = 2}, seed);
    const std::size_t budget = 6 + seed % 4, size = 2 + seed % 5;
    Positions held(budget);
    std::iota(held.begin(), held.end(), Position{0});
    for (auto next = static_cast<Position>(budget); next < 25;) {
      for (std::size_t i = 0; i < size && next < 25; ++i) held.push_back(next++);
      const std::vector<double> scores = attended(run, held, 2);
      std::vector<std::pair<double, Position>> order;
      for (std::size_t i = 0; i + 2 < held.size(); ++i) order.emplace_back(scores[i], held[i]);
      std::sort(order.rbegin(), order.rend());
      Positions kept(held.end() - 2, held.end());
      for (std::size_t i = 0; i + 2 < budget; ++i) kept.push_back(order[i].second);
      std::sort(kept.begin(), kept.end());
      held = kept;
    }
    const std::string base = "snapkv(window=2,pool=none)";
    CHECK(feed("blockwise(base=" + base + ",size=" + std::to_string(size) + ")", run, budget).kept == held);
    differ += held != feed(base, run, budget).kept;
    CHECK(feed("blockwise(base=" + base + ",size=25)", run, budget).kept == feed(base, run, budget).kept);
  }
  CHECK(differ > 6);
}

TEST_CASE("a random base draws anew at every cut, and again alike for a seed") {
  const Run run = blank_run({.prompt = 4, .decode = 60, .n_lanes = 1, .group = 1});
  const std::string policy = "periodic(base=random,interval=4)";
  CHECK(feed(policy, run, 16).held == feed(policy, run, 16).held);
  // Were draws those of the place in the cache, the oldest that stayed once would stay for good.
  const Fed fed = feed(policy, run, 16);
  CHECK(fed.held.back().front() > 8);
}

TEST_CASE("systems that are looked for and are not here say why") {
  for (const std::string name : {"cacheblend", "KVCompose", "locret", "dynamic_kv", "MagicDec",
                                 "block-attention", "LazyEviction", "LU-KV", "epikv"})
    CHECK_THROWS_WITH(parse_composition(name, builtin()), Catch::Contains("is not here: "));
}

TEST_CASE("bases that need more than what is held are refused by name") {
  for (const std::string base : {"h2o", "expected_attention", "critical_kv", "fastgen", "hashevict"})
    for (const std::string policy : {"periodic", "chunked", "blockwise"})
      CHECK_THROWS_AS(parse_composition(policy + "(base=" + base + ")", builtin()), Error);
}

}  // namespace kvsim::policy::test::test_eviction_periodic
