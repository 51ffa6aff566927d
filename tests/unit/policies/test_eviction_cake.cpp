#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_cake {

using Positions = std::vector<Position>;

namespace {

struct Options {
  std::size_t window = 32, kernel = 1;
  double gamma = 200;
};

/// Returns the mean of `values` around i, with zeros beyond the ends.
double average(const std::vector<double>& values, std::size_t i, std::size_t kernel) {
  const std::size_t reach = kernel / 2;
  double sum = 0;
  for (std::size_t k = 0; k < kernel; ++k)
    if (i + k >= reach && i + k - reach < values.size()) sum += values[i + k - reach];
  return sum / static_cast<double>(kernel);
}

double prompt_score(const Options& options, const Run& run, std::size_t j) {
  const std::size_t n = run.prompt - std::min(options.window, run.prompt);
  if (j >= n) return INFINITY;
  double out = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i) {
      double mean = 0, squares = 0;
      for (std::size_t q = n; q < run.prompt; ++q)
        mean += static_cast<double>(run.p(head, q, i)) / static_cast<double>(options.window);
      for (std::size_t q = n; q < run.prompt; ++q)
        squares += std::pow(static_cast<double>(run.p(head, q, i)) - mean, 2);
      values[i] = mean;
      if (options.window > 1) values[i] += options.gamma * squares / static_cast<double>(options.window - 1);
    }
    out += average(values, j, options.kernel);
  }
  return out;
}

/// The last query's row over the resident positions before the window, smoothed in order of position.
double decode_score(const Options& options, const Run& run, const Attended& attended, Position j) {
  const Positions held(attended.back().begin(), attended.back().end());
  const std::size_t window = options.window - 1;  // the next token is the last of the window
  const std::size_t n = held.size() - std::min(window, held.size());
  const auto place = static_cast<std::size_t>(std::find(held.begin(), held.end(), j) - held.begin());
  if (place >= n) return 0;
  double out = 0;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    const std::size_t query = attended.size() - 1;
    double mass = 0;
    for (const Position i : held)
      mass += static_cast<double>(run.p(head, query, static_cast<std::size_t>(i)));
    std::vector<double> row;
    for (std::size_t i = 0; i < n; ++i)
      row.push_back(static_cast<double>(run.p(head, query, static_cast<std::size_t>(held[i]))) / mass);
    out += average(row, place, options.kernel);
  }
  return out;
}

SlowRule rule(const Options& options) {
  return {.score =
              [options](const Run& run, const Attended& attended, Position j) {
                return attended.size() == run.prompt ? prompt_score(options, run, static_cast<std::size_t>(j))
                                                     : decode_score(options, run, attended, j);
              },
          .window = options.window};
}

}  // namespace

TEST_CASE("cake keeps positions whose attention is high or varies, worked by hand") {
  Run run = blank_run({.prompt = 5, .decode = 0, .n_lanes = 1, .group = 1});
  // Rows 3 and 4 over 0, 1, 2: 0.2 0.2, 0.3 0.1, 0.25 0.25. Means 0.2, 0.2, 0.25; variances 0, 0.02, 0.
  run.p(0, 3, 0) = run.p(0, 4, 0) = 0.2F;
  run.p(0, 3, 1) = 0.3F, run.p(0, 4, 1) = 0.1F;
  run.p(0, 3, 2) = run.p(0, 4, 2) = 0.25F;
  CHECK(feed("cake(window=2,pool=none,gamma=0)", run, 3).kept == Positions{2, 3, 4});
  CHECK(feed("cake(window=2,pool=none,gamma=2)", run, 3).kept == Positions{2, 3, 4});  // 0.24 against 0.25
  CHECK(feed("cake(window=2,pool=none,gamma=3)", run, 3).kept == Positions{1, 3, 4});  // 0.26
  CHECK(feed("cake(window=2,pool=none)", run, 3).kept == Positions{1, 3, 4});
}

TEST_CASE("cake agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Options options{
        .window = 1 + seed % 5, .kernel = 1 + 2 * (seed % 4), .gamma = seed % 3 == 0 ? 0.0 : 50.0};
    const int lanes = 1 + static_cast<int>(seed % 2);
    const Run run = random_run({.prompt = 4 + seed % 17, .decode = 12, .n_lanes = lanes, .group = 2}, seed);
    const std::string policy =
        "cake(window=" + std::to_string(options.window) + ",pool=avg:" + std::to_string(options.kernel) +
        ",gamma=" + std::to_string(options.gamma) + ",unit=" + (lanes == 1 ? "lane)" : "layer)");
    for (std::size_t budget = options.window; budget < run.prompt + 8; ++budget) {
      const Fed slow = feed_slowly(rule(options), run, budget), fast = feed(policy, run, budget);
      CAPTURE(policy, seed, budget);
      CHECK(fast.kept == slow.kept);
      CHECK(fast.held == slow.held);
    }
  }
}

TEST_CASE("without variance and without decoding cake is snapkv") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 60, .decode = 5, .n_lanes = 1, .group = 2}, seed);
    for (std::size_t budget = 32; budget < 60; budget += 5)
      CHECK(feed("cake(gamma=0,decode=false)", run, budget).held == feed("snapkv", run, budget).held);
  }
}

TEST_CASE("without smoothing and with a window of one cake decodes as tova does per lane") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = random_run({.prompt = 12, .decode = 9, .n_lanes = 1, .group = 2}, seed);
    for (std::size_t budget = 2; budget < 14; ++budget)
      CHECK(feed("cake(window=1,pool=none,gamma=0,phase=post)", run, budget).held ==
            feed("tova(unit=lane,window=1,phase=post)", run, budget).held);
  }
}

TEST_CASE("cake's prompt score decides evictions before any generated token has attended") {
  // The last two rows attend 0, 1, 2 with 0.1, 0.3, 0.2: position 0 is evicted when the prompt ends at budget
  // 4, and 2 when the first token arrives, whatever that token attends.
  Run run = blank_run({.prompt = 5, .decode = 2, .n_lanes = 1, .group = 1});
  for (std::size_t i = 3; i < 5; ++i) run.p(0, i, 0) = 0.1F, run.p(0, i, 1) = 0.3F, run.p(0, i, 2) = 0.2F;
  run.p(0, 5, 2) = 1;
  const Fed fed = feed("cake(window=2,gamma=0,pool=none)", run, 4);
  CHECK(fed.kept == std::vector<Position>{1, 2, 3, 4});
  CHECK(fed.held[0] == std::vector<Position>{1, 3, 4, 5});
}

}  // namespace kvsim::policy::test::test_eviction_cake
