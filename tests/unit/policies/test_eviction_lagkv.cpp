#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_lagkv {

using Positions = std::vector<Position>;

namespace {

struct Options {
  std::size_t sinks = 4, lag = 128;
  bool across = false;
};

/// Returns the standard deviation over channels, each scaled by its range in [from, from + lag).
double spread(const std::vector<float>& rows, std::size_t dim, std::size_t j, std::size_t from,
              std::size_t lag) {
  std::vector<double> scaled;
  for (std::size_t c = 0; c < dim; ++c) {
    double least = INFINITY, most = -INFINITY;
    for (std::size_t i = from; i < from + lag; ++i) {
      least = std::min(least, static_cast<double>(rows[i * dim + c]));
      most = std::max(most, static_cast<double>(rows[i * dim + c]));
    }
    scaled.push_back(most > least ? (rows[j * dim + c] - least) / (most - least) : 0);
  }
  double mean = 0, squares = 0;
  for (const double x : scaled) mean += x / static_cast<double>(dim);
  for (const double x : scaled) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(dim - 1));
}

double share(const std::vector<float>& rows, std::size_t dim, std::size_t j, std::size_t begin,
             std::size_t lag) {
  double sum = 0;
  for (std::size_t i = begin; i < begin + lag; ++i) sum += std::exp(spread(rows, dim, i, begin + lag, lag));
  return std::exp(spread(rows, dim, j, begin + lag, lag)) / sum;
}

double raw_score(const Options& options, const Run& run, std::size_t j) {
  const std::size_t begin = j - (j - options.sinks) % options.lag;
  return (share(run.keys[0], 3, j, begin, options.lag) + share(run.values[0], 2, j, begin, options.lag)) / 2;
}

double score(const Options& options, const Run& run, Position position) {
  const auto j = static_cast<std::size_t>(position);
  if (j < options.sinks) return 1;
  if (run.prompt < options.sinks + 2 * options.lag)
    return static_cast<double>(j - options.sinks) / static_cast<double>(run.prompt - options.sinks);
  const std::size_t lags = (run.prompt - options.sinks) / options.lag;
  const std::size_t begin = j - (j - options.sinks) % options.lag;
  if (begin >= options.sinks + (lags - 1) * options.lag) return 1;
  if (options.across) return raw_score(options, run, j);
  double lower = 0;
  for (std::size_t i = begin; i < begin + options.lag; ++i) {
    const double other = raw_score(options, run, i), own = raw_score(options, run, j);
    if (other < own || (other == own && i < j)) ++lower;
  }
  return lower / static_cast<double>(options.lag);
}

}  // namespace

TEST_CASE("lagkv keeps tokens that differ from the next lag, worked by hand") {
  Run run = blank_run({.prompt = 6, .decode = 1, .n_lanes = 1, .group = 1});
  // Lags 0 1, 2 3 and 4 5. Keys of the second lag range over 0..2 in every channel: position 0 (1, 1, 1) is
  // even, 1 (0, 2, 1) is spread. Those of the third range over 0..1: 2 (0, 0, 0) is even, 3 (2, 2, 0) not.
  const std::vector<std::vector<float>> keys = {{1, 1, 1}, {0, 2, 1}, {0, 0, 0},
                                                {2, 2, 2}, {0, 0, 0}, {1, 1, 1}};
  for (std::size_t j = 0; j < 6; ++j) std::copy(keys[j].begin(), keys[j].end(), &run.keys[0][j * 3]);
  run.keys[0][3 * 3 + 2] = 0;  // 3 is (2, 2, 0): the second lag has no range in its last channel
  // Budget 4 keeps the last lag and the better token of each other lag.
  CHECK(feed("lagkv(sinks=0,lag=2)", run, 4).kept == Positions{1, 3, 4, 5});
  CHECK(feed("lagkv(sinks=0,lag=2)", run, 4).held[0] == Positions{1, 3, 4, 5, 6});
  // Two whole lags are needed beside the sink: otherwise the newest are kept.
  CHECK(feed("lagkv(sinks=3,lag=2)", run, 5).kept == Positions{0, 1, 2, 4, 5});
}

TEST_CASE("lagkv agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Options options{.sinks = seed % 4, .lag = 1 + seed % 7, .across = seed % 3 == 1};
    const Run run = random_run({.prompt = 5 + seed % 37, .decode = 2, .n_lanes = 1, .group = 1}, seed);
    const SlowRule rule{
        .score = [options](const Run& r, const Attended&, Position j) { return score(options, r, j); },
        .sinks = options.sinks,
        .decodes = false};
    const std::string policy = "lagkv(sinks=" + std::to_string(options.sinks) +
                               ",lag=" + std::to_string(options.lag) +
                               ",across=" + (options.across ? "true)" : "false)");
    for (std::size_t budget = options.sinks + 1; budget < run.prompt + 2; budget += 3) {
      CAPTURE(policy, seed, budget);
      CHECK(feed(policy, run, budget).kept == feed_slowly(rule, run, budget).kept);
    }
  }
}

TEST_CASE("every lag keeps the same share") {
  const Run run = random_run({.prompt = 4 + 6 * 16, .decode = 0, .n_lanes = 1, .group = 1}, 9);
  // 4 sinks and the last lag of 16, and a quarter of each of the five others.
  const Positions kept = feed("lagkv(lag=16)", run, 4 + 16 + 5 * 4).kept;
  for (Position lag = 0; lag < 5; ++lag)
    CHECK(std::count_if(kept.begin(), kept.end(),
                        [&](Position j) { return j >= 4 && (j - 4) / 16 == lag; }) == 4);
}

}  // namespace kvsim::policy::test::test_eviction_lagkv
