// Means over the rows that see a position, where a sliding window hides it from later rows.
#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test::test_sliding_window {

namespace {

constexpr std::size_t kSpan = 5;

/// Each row sees the last kSpan positions, itself included.
Run windowed_run(std::uint64_t seed, std::size_t decode = 0) {
  Run run = random_run({.prompt = 30, .decode = decode, .n_lanes = 1, .group = 2}, seed);
  run.unit.span = kSpan;
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < run.length(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        if (i - j >= kSpan) run.p(head, i, j) = 0;
        sum += run.p(head, i, j);
      }
      for (std::size_t j = 0; j <= i; ++j) run.p(head, i, j) /= sum;
    }
  return run;
}

/// Returns the mean over query heads of the summed attention of rows [0, prompt) on a position.
double received(const Run& run, std::size_t j) {
  double sum = 0;
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = j; i < run.prompt; ++i) sum += static_cast<double>(run.p(head, i, j)) / 2;
  return sum;
}

std::vector<double> scores_of(const std::string& policy, const Run& run) {
  const auto eviction = parse_composition(policy, builtin()).eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  return {eviction->scores().begin(), eviction->scores().end()};
}

}  // namespace

TEST_CASE("a unit knows which queries see which keys") {
  CacheUnit unit{.span = 5};
  CHECK(unit.sees(9, 5));
  CHECK_FALSE(unit.sees(9, 4));
  CHECK(unit.seen_by(0, kAllRows, 30) == 5);
  CHECK(unit.seen_by(27, kAllRows, 30) == 3);
  CHECK(unit.seen_by(26, 2, 30) == 2);
  CHECK(unit.seen_by(22, 2, 30) == 0);  // seen up to row 26
  CHECK(unit.seen_by(24, 3, 30) == 2);  // rows 27 and 28
  unit.span = 0;
  CHECK(unit.sees(9, 0));
  CHECK(unit.seen_by(4, kAllRows, 30) == 26);
  CHECK(unit.seen_by(4, 7, 30) == 7);
}

TEST_CASE("means over the rows that see a position divide by the window where it slides") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Run run = windowed_run(seed);
    const std::vector<double> mean = scores_of("h2o(normalise=mean)", run),
                              since = scores_of("h2o.kvpress", run), roco = scores_of("roco(spread=0)", run),
                              weight = scores_of("h2o(prompt_weight=visible)", run);
    for (std::size_t j = 0; j < run.prompt; ++j) {
      const auto seen = static_cast<double>(std::min(kSpan, run.prompt - j));
      CAPTURE(seed, j);
      CHECK(mean[j] == Approx(received(run, j) / seen));
      CHECK(weight[j] == Approx(received(run, j) / seen));
      CHECK(roco[j] == Approx(received(run, j) / seen));
      CHECK(since[j] == Approx(received(run, j) / static_cast<double>(run.prompt - j)));
    }
  }
}

TEST_CASE("ems_like compares means over the rows that see a position with those of the last rows") {
  const Run run = windowed_run(4);
  const std::size_t window = 3, n = run.prompt - window;
  const std::vector<double> scores = scores_of("ems_like(window=3)", run);
  for (std::size_t j = 0; j < n; ++j) {
    double expected = 0;
    for (int head = 0; head < 2; ++head) {
      std::vector<double> global(n), local(n);
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t i = k; i < run.prompt; ++i) {
          global[k] +=
              static_cast<double>(run.p(head, i, k)) / static_cast<double>(std::min(kSpan, run.prompt - k));
          if (i >= n) local[k] += static_cast<double>(run.p(head, i, k)) / static_cast<double>(window);
        }
      const double scale =
          *std::max_element(global.begin(), global.end()) / *std::max_element(local.begin(), local.end());
      expected += std::max(global[j], scale * local[j]) / 2;
    }
    CHECK(scores[j] == Approx(expected));
  }
}

TEST_CASE("while decoding, tokens beyond the sliding window do not age") {
  // All attention of a row goes to itself and, if it is seen, position 0. No row after the prompt sees 0, so
  // its mean does not change and stays above those of the tokens between, although later rows have passed.
  Run run = blank_run({.prompt = 6, .decode = 8, .n_lanes = 1, .group = 2});
  run.unit.span = kSpan;
  for (int head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < run.length(); ++i) {
      if (i < kSpan) run.p(head, i, 0) = i == 0 ? 1.0F : 0.5F;
      for (std::size_t j = i; i - j < kSpan && (j > 0 || i == 0); --j) {
        const float rest = i < kSpan ? 0.5F : 1.0F;
        if (i > 0) run.p(head, i, j) = rest / static_cast<float>(std::min(i, kSpan));
        if (j == 0) break;
      }
    }
  for (const char* policy : {"h2o(recent=0,window=3,normalise=mean)", "roco(spread=0,sinks=0,window=3)"}) {
    CAPTURE(policy);
    for (const std::vector<Position>& held : feed(policy, run, 5).held)
      CHECK(std::find(held.begin(), held.end(), 0) != held.end());
  }
  // Divided by all rows since, it falls behind in the end.
  const Fed since = feed("h2o(recent=0,window=3,normalise=mean_since)", run, 5);
  CHECK(std::find(since.held.back().begin(), since.held.back().end(), 0) == since.held.back().end());
}

}  // namespace kvsim::policy::test::test_sliding_window
