// Scores that look at each of the last rows by itself: defensive_kv, finch, group_peaks; lazy_layers reads
// one row.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/builtin.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_window_rows {

using Positions = std::vector<Position>;
using Vector = std::vector<double>;

namespace {

Vector scores_of(const std::string& policy, const Run& run) {
  const auto eviction = parse_composition(policy, builtin()).eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  return {eviction->scores().begin(), eviction->scores().end()};
}

/// Two query heads and a window of two rows over two older positions.
Run rows_run() {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 2});
  const float rows[2][2][4] = {{{0.5F, 0.25F, 0.25F, 0}, {0.1F, 0.3F, 0.2F, 0.4F}},
                               {{0.25F, 0.5F, 0.25F, 0}, {0.2F, 0.2F, 0.2F, 0.4F}}};
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 4; ++j) run.p(head, 2 + i, j) = rows[head][i][j];
  return run;
}

Vector slow_defensive(const Run& run, std::size_t window, std::size_t reach, double mass) {
  const std::size_t older = run.prompt - window;
  Vector most(older), norms(older), mean(older);
  for (int g = 0; g < run.unit.group; ++g)
    for (std::size_t i = older; i < run.prompt; ++i) {
      Vector smooth(older);
      double before = 0, after = 0;
      for (std::size_t j = 0; j < older; ++j) {
        for (std::size_t k = j < reach ? 0 : j - reach; k < std::min(older, j + reach + 1); ++k)
          smooth[j] += static_cast<double>(run.p(g, i, k)) / static_cast<double>(2 * reach + 1);
        before += static_cast<double>(run.p(g, i, j));
        after += smooth[j];
        mean[j] += static_cast<double>(run.p(g, i, j)) / static_cast<double>(window) / run.unit.group;
      }
      for (std::size_t j = 0; j < older; ++j) most[j] = std::max(most[j], smooth[j] * before / after);
    }
  const double floor = std::accumulate(most.begin(), most.end(), 0.0) / static_cast<double>(older);
  const auto dim = static_cast<std::size_t>(run.unit.value_dim);
  for (std::size_t j = 0; j < older; ++j)
    for (int g = 0; g < run.unit.group; ++g)
      for (std::size_t h = 0; h < kHidden; ++h) {
        double x = 0;
        for (std::size_t c = 0; c < dim; ++c)
          x += static_cast<double>(run.values[0][j * dim + c]) *
               static_cast<double>(run.output_weights[static_cast<std::size_t>(g)][c * kHidden + h]);
        norms[j] += std::abs(x);
      }
  const double norm = std::accumulate(norms.begin(), norms.end(), 0.0) / static_cast<double>(older);
  Vector out(older);
  for (std::size_t j = 0; j < older; ++j) out[j] = std::max(most[j], floor) * norms[j] / norm;
  // First come those before the one that reaches the mass.
  double enough = mass;
  for (std::size_t j = older - std::min(window, older); j < older; ++j) enough -= mean[j];
  const double all = std::accumulate(mean.begin(), mean.end(), 0.0);
  std::vector<std::size_t> order(older);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return mean[a] > mean[b]; });
  double held = 0;
  std::vector<std::size_t> first;
  for (const std::size_t j : order) {
    held += mean[j] / all;
    if (held >= enough) {
      for (const std::size_t one : first) out[one] = 1e6 + mean[one];
      break;
    }
    first.push_back(j);
  }
  return out;
}

}  // namespace

TEST_CASE("group_peaks by hand: the larger of the heads in each row, then the mean") {
  // Rows (.5, .5) and (.2, .3); snapkv takes the means of the heads first: (.3, .275), (.225, .35).
  const Vector scores = scores_of("group_peaks(window=2)", rows_run());
  CHECK(scores[0] == Approx(0.35));
  CHECK(scores[1] == Approx(0.4));
  CHECK(feed("group_peaks(window=2)", rows_run(), 3).kept == Positions{1, 2, 3});
}

TEST_CASE("group_peaks of a group of one is snapkv without smoothing") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 8 + seed, .decode = 3, .n_lanes = 1, .group = 1}, seed);
    CHECK(feed("group_peaks(window=4)", run, 6).held == feed("snapkv(window=4,pool=none)", run, 6).held);
  }
}

TEST_CASE("finch by hand: a row counts by how many positions it sees") {
  // Rows see 2 and 3 positions: heads (2 * .5 + 3 * .1) / 2 = .65 and (2 * .25 + 3 * .2) / 2 = .55, mean .6;
  // the other position .7 and .8, mean .75.
  const Vector scores = scores_of("finch(window=2)", rows_run());
  CHECK(scores[0] == Approx(0.6));
  CHECK(scores[1] == Approx(0.75));
  CHECK(feed("finch(window=2)", rows_run(), 3).kept == Positions{1, 2, 3});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 8 + seed, .decode = 3, .n_lanes = 1, .group = 2}, seed);
    const Vector plain = scores_of("finch(window=4,normalise=false)", run),
                 snapkv = scores_of("snapkv(window=4,pool=none)", run),
                 weighed = scores_of("finch(window=4)", run);
    for (std::size_t j = 0; j + 4 < run.prompt; ++j) {
      CHECK(plain[j] == Approx(snapkv[j]));
      double expected = 0;
      for (int g = 0; g < 2; ++g)
        for (std::size_t i = 0; i < 4; ++i)
          expected += static_cast<double>(run.prompt - 4 + i) *
                      static_cast<double>(run.p(g, run.prompt - 4 + i, j)) / 8;
      CHECK(weighed[j] == Approx(expected));
    }
  }
}

TEST_CASE("defensive_kv by hand") {
  Run run = rows_run();
  // Values of norm 1 and 3 after the projection, for both heads: shares of their mean 1/2 and 3/2. The
  // largest attention of any row and head is .5 for both, and the mean of these is no more. The two positions
  // before the window hold .2625 + .3125 of the mean row, which leaves .325 of the mass of .9: the first
  // stage has none, as the larger share alone, .3125 / .575, is more.
  std::fill(run.values[0].begin(), run.values[0].end(), 0.0F);
  const auto dim = static_cast<std::size_t>(run.unit.value_dim);
  run.values[0][0] = 1;
  run.values[0][dim] = 3;
  for (std::vector<float>& weights : run.output_weights) {
    std::fill(weights.begin(), weights.end(), 0.0F);
    weights[0] = 1;
  }
  const Vector scores = scores_of("defensive_kv(window=2,pool=none)", run);
  CHECK(scores[0] == Approx(0.25));
  CHECK(scores[1] == Approx(0.75));
}

TEST_CASE("defensive_kv agrees with its definition") {
  bool staged = false;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Run run = random_run({.prompt = 12 + seed, .decode = 0, .n_lanes = 1, .group = 2}, seed);
    for (const double mass : {0.0, 0.6, 0.9}) {
      const Vector expected = slow_defensive(run, 3, 1, mass),
                   got =
                       scores_of("defensive_kv(window=3,pool=avg:3,mass=" + std::to_string(mass) + ")", run);
      for (std::size_t j = 0; j < expected.size(); ++j) {
        CAPTURE(seed, mass, j);
        CHECK(got[j] == Approx(expected[j]).epsilon(1e-5));
        staged = staged || expected[j] > 1e5;
      }
    }
  }
  CHECK(staged);
}

TEST_CASE("lazy_layers by hand") {
  // The newest row pays .1 + .2 + .3 to the first and the two newest of eight positions.
  Run run = blank_run({.prompt = 8, .decode = 0, .n_lanes = 2, .group = 1});
  const float row[8] = {0.1F, 0.2F, 0.1F, 0.05F, 0.03F, 0.02F, 0.2F, 0.3F};
  for (int head = 0; head < 2; ++head)
    for (std::size_t j = 0; j < 8; ++j) run.p(head, 7, j) = row[j];
  Run lazy = run;
  for (int head = 0; head < 2; ++head) lazy.p(head, 7, 0) = 0.9F;  // 1.4 in sum, as no row has
  const auto split = [&](const std::string& rule) {
    const Composition composition =
        parse_composition("streaming_llm(sinks=1)+lazy_layers(" + rule + ")", builtin());
    return allocate(composition, measured_request(composition, {run, lazy}, 3));
  };
  const std::size_t all = kNeverEvict;
  CHECK(split("sinks=1,recent=2,threshold=0.7") == Tokens{all, all, 2, 2});
  CHECK(split("sinks=1,recent=2,threshold=0.5") == Tokens{2, 2, 2, 2});
  CHECK(split("sinks=1,recent=2,threshold=1") == Tokens{all, all, 2, 2});
  CHECK(split("sinks=1,recent=3,threshold=0.61") == Tokens{3, 3, 3, 3});
  CHECK(split("sinks=2,recent=2,threshold=0.7") == Tokens{3, 3, 3, 3});
  CHECK(split("sinks=1,recent=6,threshold=0") == Tokens{all, all, all, all});  // too short to be cut
  CHECK(split("") == Tokens{all, all, all, all});
}

}  // namespace kvsim::policy::test::test_eviction_window_rows
