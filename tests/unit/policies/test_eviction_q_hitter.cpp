#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "policies/parts/codes/scalar_code.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_q_hitter {

using Positions = std::vector<Position>;

namespace {

double attention(const Run& run, const Attended& attended, Position j) {
  double sum = 0;
  for (std::size_t query = static_cast<std::size_t>(j); query < attended.size(); ++query)
    sum += query < run.prompt ? mean_row(run, query, j) : renormalised(run, attended, query, j);
  return sum;
}

double error_of(const std::vector<float>& tensor, int dim, Position j) {
  return quantisation_error(
      std::span(tensor).subspan(static_cast<std::size_t>(j * dim), static_cast<std::size_t>(dim)), 4);
}

template <class Of>
double scaled(const std::set<Position>& among, Position j, Of of) {
  double least = of(j), largest = least;
  for (const Position i : among) least = std::min(least, of(i)), largest = std::max(largest, of(i));
  return largest > least ? (of(j) - least) / (largest - least) : 0;
}

/// The rule step by step, by sorting; of equals the older is evicted.
Fed feed_q_hitter(const Run& run, std::size_t budget, double lambda) {
  const std::size_t reserved = budget * 35 / 100;
  const auto recent = static_cast<Position>(budget / 4);
  const auto combined = [&](const Attended& attended, const std::set<Position>& among, Position j) {
    const double friendly =
        1 - (scaled(among, j, [&](Position i) { return error_of(run.keys[0], run.unit.head_dim, i); }) +
             scaled(among, j, [&](Position i) { return error_of(run.values[0], run.unit.value_dim, i); })) /
                2;
    return lambda * scaled(among, j, [&](Position i) { return attention(run, attended, i); }) +
           (1 - lambda) * friendly;
  };
  const Cut cut = [&](const Attended& attended, std::set<Position>& held, std::size_t size, Position newest) {
    Positions free;
    for (const Position j : held)
      if (j <= newest - recent) free.push_back(j);
    const auto by = [&](auto score) {
      std::sort(free.begin(), free.end(),
                [&](Position a, Position b) { return score(a) != score(b) ? score(a) > score(b) : a > b; });
    };
    by([&](Position j) { return attention(run, attended, j); });
    const std::size_t leaving = held.size() - size;
    free.erase(free.begin(),
               free.begin() + static_cast<std::ptrdiff_t>(std::min(reserved, free.size() - leaving)));
    const std::set<Position> among = held;
    by([&](Position j) { return combined(attended, among, j); });
    for (std::size_t i = 0; i < leaving; ++i) held.erase(free[free.size() - 1 - i]);
  };
  return feed_cutting(cut, run, budget);
}

}  // namespace

TEST_CASE("the error of a quantised vector, worked by hand") {
  // 2 bits: 3 steps from -1 to 2, scale 1, zero at level 1. -1, 0, 2 are exact; 0.25 goes to 0, 1.5 to 2
  // (even).
  CHECK(quantisation_error(std::vector<float>{-1, 0, 2}, 2) == 0);
  CHECK(quantisation_error(std::vector<float>{-1, 0.25F, 2}, 2) == Approx(0.25));
  CHECK(quantisation_error(std::vector<float>{-1, 0.25F, 1.5F, 2}, 2) == Approx(std::sqrt(0.0625 + 0.25)));
  // 10 to 13: zero would be level -10, so it is level 0 and all are clipped to 3.
  CHECK(quantisation_error(std::vector<float>{10, 13}, 2) == Approx(std::sqrt(49 + 100)));
  // All zero: the range counts as 1e-5.
  CHECK(quantisation_error(std::vector<float>{0, 0}, 4) == 0);
}

TEST_CASE("q_hitter prefers what quantises well, worked by hand") {
  Run run = blank_run({.prompt = 4, .decode = 1, .n_lanes = 1, .group = 1});
  const std::vector<float> last = {0.4F, 0.3F, 0.2F, 0.1F};
  for (std::size_t j = 0; j < 4; ++j) run.p(0, 3, j) = last[j];
  // Keys are zero. Values (-1, 2) have no error at 2 bits; of position 0 (10, 13) it is large: scaled errors
  // 1, 0, 0, 0, friendliness 0.5, 1, 1, 1. Attention scaled: 1, 2/3, 1/3, 0.
  for (std::size_t j = 0; j < 5; ++j) run.values[0][2 * j] = -1, run.values[0][2 * j + 1] = 2;
  run.values[0][0] = 10, run.values[0][1] = 13;
  const auto kept = [&](const std::string& more) {
    return feed("q_hitter(bits=2,recent=0," + more + ")", run, 2).kept;
  };
  // lambda 0.5: 0.75, 0.833, 0.667, 0.5. lambda 0.2: 0.6, 0.933, 0.867, 0.8.
  CHECK(kept("reserved=0,lambda=0.5") == Positions{0, 1});
  CHECK(kept("reserved=0,lambda=0.2") == Positions{1, 2});
  CHECK(kept("reserved=0.5,lambda=0.2") == Positions{0, 1});  // 0 has the most attention
}

TEST_CASE("q_hitter agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Run run = random_run({.prompt = 3 + 2 * seed, .decode = 9, .n_lanes = 1, .group = 2}, seed);
    for (const auto& [text, lambda] : {std::pair{"0", 0.0}, {"0.3", 0.3}, {"0.5", 0.5}}) {
      for (std::size_t budget = 2; budget < 16; budget += 3) {
        const std::string policy = std::string("q_hitter(lambda=") + text + ")";
        const Fed slow = feed_q_hitter(run, budget, lambda), fast = feed(policy, run, budget);
        CAPTURE(policy, seed, budget);
        CHECK(fast.kept == slow.kept);
        CHECK(fast.held == slow.held);
      }
    }
  }
}

TEST_CASE("q_hitter by attention alone is h2o, whatever is reserved") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 6 + seed, .decode = 15}, seed);
    for (std::size_t budget = 2; budget < 18; ++budget)
      for (const char* reserved : {"0", "0.35", "1"})
        CHECK(feed(std::string("q_hitter(lambda=1,reserved=") + reserved + ")", run, budget).held ==
              feed("h2o(recent=0.25)", run, budget).held);
  }
}

}  // namespace kvsim::policy::test::test_eviction_q_hitter
