#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"

namespace kvsim::policy::test::test_allocation_adakv {

using Scores = std::vector<std::vector<double>>;

namespace {

/// One layer per `heads` entries of `scores`; the eviction protects positions behind those, whose scores are
/// the highest but meaningless.
AllocationRequest request_of(Scores scores, std::size_t heads, std::size_t budget,
                             std::size_t n_protected = 0) {
  AllocationRequest request{.n_layers = scores.size() / heads,
                            .n_kv_heads = heads,
                            .prompt = scores[0].size() + n_protected,
                            .budget = budget,
                            .floor = std::max<std::size_t>(n_protected, 1)};
  for (std::vector<double>& lane : scores) lane.resize(lane.size() + n_protected, 1e9);
  request.scores = std::move(scores);
  request.protection = [n_protected](std::size_t, std::size_t) { return Protection{0, n_protected}; };
  return request;
}

Scores random_scores(std::size_t lanes, std::size_t n, std::uint64_t seed) {
  const int levels = seed % 3 == 0 ? 4 : 1000000;
  Scores out(lanes, std::vector<double>(n));
  for (std::size_t lane = 0; lane < lanes; ++lane)
    for (std::size_t j = 0; j < n; ++j)
      out[lane][j] = std::floor(levels * uniform01(combine({seed, lane, j}))) / static_cast<double>(lane + 1);
  return out;
}

/// Returns the sum of scores that the lanes keep: the best ones beside the protected positions.
double kept(const AllocationRequest& request, const Tokens& tokens) {
  double sum = 0;
  for (std::size_t lane = 0; lane < tokens.size(); ++lane) {
    const auto [sinks, window] = request.protection(tokens[lane], request.prompt);
    const std::vector<double>& scores = request.scores[lane];
    std::vector<double> falling(scores.begin() + static_cast<std::ptrdiff_t>(sinks),
                                scores.end() - static_cast<std::ptrdiff_t>(window));
    std::sort(falling.begin(), falling.end(), std::greater<>());
    for (std::size_t i = 0; i + sinks + window < tokens[lane]; ++i) sum += falling[i];
  }
  return sum;
}

const Scores kTwoHeads = {{.5, .2, .12, .1, .05, .03}, {.2, .18, .17, .16, .15, .14}};

}  // namespace

TEST_CASE("adakv(variant=kvpress) on kvpress's example") {
  // Three tokens per head, a fifth of them pinned: int(0.6) = 0. The six best of both heads are .5 .2 of the
  // first and .2 .18 .17 .16 of the second.
  CHECK(allocate("adakv(variant=kvpress)", request_of(kTwoHeads, 2, 3)) == Tokens{2, 4});
  CHECK(allocate("adakv(variant=kvpress,alpha=1)", request_of(kTwoHeads, 2, 3)) == Tokens{3, 3});
  // Two thirds pin the two best of each; .17 and .16 are the best of the rest.
  CHECK(allocate("adakv(variant=kvpress,alpha=0.7)", request_of(kTwoHeads, 2, 3)) == Tokens{2, 4});
}

TEST_CASE("adakv, worked by hand") {
  // Nothing protected, but a lane never has less than one: 2 and 4 win as above, 1 and 3 above the floor of 1
  // with a mean of 2. A fifth of 2 for both and 0.8 of what they won: 1.2 and 2.8.
  CHECK(allocate("adakv", request_of(kTwoHeads, 2, 3)) == Tokens{2, 4});
  // 0.5: 1.5 and 2.5; of equal remainders the first head's.
  CHECK(allocate("adakv(alpha=0.5)", request_of(kTwoHeads, 2, 3)) == Tokens{3, 3});
  // The authors' code rounds each: 0.5 * 1 + int(0.5 * 2) = 1.5 and 2.5 go to the even 2 and 2 above the
  // floor.
  CHECK(allocate("adakv(alpha=0.5,variant=official)", request_of(kTwoHeads, 2, 3)) == Tokens{3, 3});
  // alpha 0.2: round(0.8) + 0 and round(2.4) + 0: one less than the budget.
  CHECK(allocate("adakv(variant=official)", request_of(kTwoHeads, 2, 3)) == Tokens{2, 3});
  CHECK(allocate("adakv(alpha=1)", request_of(kTwoHeads, 2, 3)) == Tokens{3, 3});
}

TEST_CASE("adakv's official rounding loses most of a token per head at a budget of 504") {
  // Of 504 tokens above a window of 8, int(0.2 * 504) = 100 are safe. Each head wins 504 of its own: 0.8 *
  // 504 + 100 = 503.2.
  Scores scores(4, std::vector<double>(2016));
  for (std::vector<double>& lane : scores) std::fill_n(lane.begin(), 504, 1.0);
  const Tokens tokens = allocate("adakv(variant=official)", request_of(scores, 4, 512, 8));
  CHECK(tokens == Tokens(4, 511));
}

TEST_CASE("adakv(normalise=true) weighs a head by how much its best tokens hold") {
  // A mean of 2 above one protected token, so the two best count: .7 of the first head's scores, .51 of the
  // second's, whose .2 .19 and .25 .245 become .14 .133 and .1275 .125. Four are taken: raw .5, .26, .25 and
  // .245, then .35, .14, .133 and .1326.
  const Scores scores = {{.5, .2, .19, .11}, {.26, .25, .245, .245}};
  CHECK(allocate("adakv(alpha=0)", request_of(scores, 2, 3, 1)) == Tokens{2, 4});
  CHECK(allocate("adakv(alpha=0,normalise=true)", request_of(scores, 2, 3, 1)) == Tokens{4, 2});
  AllocationRequest negative = request_of({{-1, -2}, {-3, -4}}, 2, 1);
  CHECK_THROWS_AS(allocate("adakv(normalise=true)", negative), Error);
  CHECK(allocate("adakv", negative) == Tokens{1, 1});
}

TEST_CASE(
    "adakv never keeps less of its own scores than equal budgets, and less with every bit of safeguard") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t heads = 1 + seed % 4, n = 3 + seed % 20, n_protected = seed % 3;
    for (std::size_t budget = std::max<std::size_t>(n_protected, 1); budget < n; budget += 2) {
      const AllocationRequest request =
          request_of(random_scores(heads * 2, n, seed), heads, budget, n_protected);
      const double uniform = kept(request, Tokens(heads * 2, budget));
      double before = kept(request, allocate("adakv(alpha=0)", request));
      for (const char* alpha : {"0.2", "0.5", "0.8", "1"}) {
        const double now = kept(request, allocate(std::string("adakv(alpha=") + alpha + ")", request));
        CHECK(now <= before + 1e-9);
        CHECK(now >= uniform - 1e-9);
        before = now;
        const double pinned =
            kept(request, allocate(std::string("adakv(variant=kvpress,alpha=") + alpha + ")", request));
        CHECK(pinned >= uniform - 1e-9);
      }
      CHECK(before == Approx(uniform));
      for (std::size_t layer = 0; layer < 2; ++layer) {
        const Tokens tokens = allocate("adakv", request);
        CHECK(total({tokens.begin() + static_cast<std::ptrdiff_t>(layer * heads),
                     tokens.begin() + static_cast<std::ptrdiff_t>((layer + 1) * heads)},
                    n) == budget * heads);
      }
    }
  }
}

TEST_CASE("no split of the same total keeps more than best_split") {
  // Tries every split of two heads in two layers.
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::size_t n = 4, n_protected = seed % 2;
    for (std::size_t budget = 1; budget <= 4; ++budget) {
      const AllocationRequest request = request_of(random_scores(4, n, seed), 2, budget, n_protected);
      const double best = kept(request, allocate("best_split", request));
      const double best_layers = kept(request, allocate("best_split(scope=layer)", request));
      CHECK(best_layers <= best + 1e-9);
      const std::size_t floor = request.floor, prompt = request.prompt, all = budget * 4;
      for (std::size_t a = floor; a <= prompt; ++a)
        for (std::size_t b = floor; b <= prompt; ++b)
          for (std::size_t c = floor; c <= prompt; ++c) {
            if (a + b + c > all || all - a - b - c < floor || all - a - b - c > prompt) continue;
            const Tokens split = {a, b, c, all - a - b - c};
            CHECK(kept(request, split) <= best + 1e-9);
            if (a == b && c == split[3]) CHECK(kept(request, split) <= best_layers + 1e-9);
          }
    }
  }
}

TEST_CASE("no registered allocation keeps more of the eviction's own scores than best_split") {
  for (const char* eviction : {"snapkv(window=4)", "l2_norm", "snapkv(window=3,unit=layer)"}) {
    const Layers layers = random_layers(4, {.prompt = 60, .decode = 0, .n_lanes = 3, .group = 2}, 3);
    const auto request_for = [&](const std::string& allocation, std::size_t budget) {
      return measured_request(parse_composition(std::string(eviction) + "+" + allocation, builtin()), layers,
                              budget);
    };
    for (const std::size_t budget : {9U, 20U, 45U}) {
      const AllocationRequest measure = request_for("best_split", budget);
      const double best = kept(measure, allocate("best_split", measure));
      std::size_t compared = 0;
      for (const PolicySpec& spec : builtin().policies()) {
        if (spec.kind() != Kind::allocation || !complete(spec)) continue;
        const Composition composition = parse_composition(std::string(eviction) + "+" + spec.name, builtin());
        if (composition.allocation.own_total()) continue;  // it does not split what it is given
        Tokens tokens;
        try {
          tokens = allocate(composition, request_for(spec.name, budget));
        } catch (const Error&) {
          continue;  // the exempt layers need more than this budget
        }
        for (std::size_t& n : tokens) n = std::min<std::size_t>(n, 60);
        CAPTURE(eviction, budget, spec.name);
        CHECK(kept(measure, tokens) <= best + 1e-9);
        ++compared;
      }
      CHECK(compared > 5);
    }
  }
}

TEST_CASE("normalising counts a lane's best token, which its floor of one already holds") {
  // Four tokens for two lanes that hold one each: of the first lane's scores the best has .85, of the
  // second's .4 .3 .2 .1. The two that are left gain .3 and .2 in the second lane, .05 and .05 in the first.
  const Scores scores = {{85, 5, 5, 5, 0}, {40, 30, 20, 10, 0}};
  CHECK(allocate("best_split(normalise=true)", request_of(scores, 2, 2)) == Tokens{1, 3});
  // adakv: the two best tokens of a head weigh it, .9 and .7: 4.5 against 21 and 14.
  CHECK(allocate("adakv(alpha=0,normalise=true)", request_of(scores, 2, 2)) == Tokens{1, 3});
  // The best two hold .95 and .42: 5 * .95 = 4.75, twice, is more than 10 * .42 = 4.2.
  const Scores sure = {{90, 5, 5, 0, 0, 0}, {11, 9, 10, 10, 10, 0}};
  CHECK(allocate("adakv(alpha=0)", request_of(sure, 2, 2)) == Tokens{1, 3});
  CHECK(allocate("adakv(alpha=0,normalise=true)", request_of(sure, 2, 2)) == Tokens{3, 1});
  // By the definition, whatever is protected.
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const std::size_t n_protected : {0U, 2U}) {
      AllocationRequest request = request_of(random_scores(2, 9, seed), 2, 5, n_protected);
      const Tokens split = allocate("best_split(normalise=true)", request);
      for (std::vector<double>& lane : request.scores) {
        const double sum =
            std::accumulate(lane.begin(), lane.end() - static_cast<std::ptrdiff_t>(n_protected), 0.0);
        for (double& score : lane) score /= sum;
      }
      double best = 0;
      for (std::size_t first = request.floor; first + request.floor <= 10; ++first)
        best = std::max(best, kept(request, {first, 10 - first}));
      CAPTURE(seed, n_protected);
      CHECK(kept(request, split) == Approx(best).epsilon(1e-12));
    }
}

TEST_CASE("best_split(normalise=true) over layers is XKV's allocation when the scores are XKV's") {
  // snapkv with XKV's window and pooling ranks by w times a constant.
  const std::string eviction = "snapkv(window=8,pool=avg:7,unit=layer)";
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Layers layers = random_layers(4, {.prompt = 70, .decode = 0, .n_lanes = 2, .group = 2}, seed);
    for (const std::size_t budget : {9U, 20U, 60U}) {
      const Composition xkv = parse_composition(eviction + "+xkv", builtin()),
                        split = parse_composition(eviction + "+best_split(normalise=true)", builtin());
      CHECK(allocate(xkv, measured_request(xkv, layers, budget)) ==
            allocate(split, measured_request(split, layers, budget)));
    }
  }
}

}  // namespace kvsim::policy::test::test_allocation_adakv
