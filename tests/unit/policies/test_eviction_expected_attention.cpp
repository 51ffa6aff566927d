#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "policies/parts/rows/expected_queries.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_expected_attention {

using Positions = std::vector<Position>;
using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

namespace {

struct Options {
  std::size_t sinks = 4, future = 512;
  bool covariance = true, value_norm = true;
  double epsilon = 0;
};

/// The rotation at a position: components 0 and 1 turn, the third is unchanged.
Matrix rotation(const Run& run, std::size_t position) {
  const double angle = static_cast<double>(static_cast<float>(position) * run.inv_freq[0]);
  return {{std::cos(angle), -std::sin(angle), 0}, {std::sin(angle), std::cos(angle), 0}, {0, 0, 1}};
}

Matrix transposed(const Matrix& a) {
  Matrix out(3, Vector(3));
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) out[j][i] = a[i][j];
  return out;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out(3, Vector(3));
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 3; ++k) out[i][j] += a[i][k] * b[k][j];
  return out;
}

Vector product(const Matrix& a, const Vector& x) {
  Vector out(3);
  for (std::size_t i = 0; i < 3; ++i) out[i] = std::inner_product(x.begin(), x.end(), a[i].begin(), 0.0);
  return out;
}

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Vector row(const std::vector<float>& rows, std::size_t i, std::size_t dim) {
  return {rows.begin() + static_cast<std::ptrdiff_t>(i * dim),
          rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * dim)};
}

/// Expected attention of one query head on every position behind the sinks, from the formulas.
Vector expected(const Options& options, const Run& run, std::size_t head) {
  std::vector<Vector> queries;
  Vector mean(3);
  for (std::size_t i = options.sinks; i < run.prompt; ++i) {
    queries.push_back(product(transposed(rotation(run, i)), row(run.queries[head], i, 3)));
    for (std::size_t c = 0; c < 3; ++c) mean[c] += queries.back()[c];
  }
  for (double& x : mean) x /= static_cast<double>(queries.size());
  Matrix sigma(3, Vector(3)), turn(3, Vector(3));
  for (const Vector& q : queries)
    for (std::size_t a = 0; a < 3; ++a)
      for (std::size_t b = 0; b < 3; ++b)
        sigma[a][b] += (q[a] - mean[a]) * (q[b] - mean[b]) / static_cast<double>(queries.size());
  for (std::size_t t = 0; t < options.future; ++t) {
    const Matrix at = rotation(run, run.prompt + t);
    for (std::size_t a = 0; a < 3; ++a)
      for (std::size_t b = 0; b < 3; ++b) turn[a][b] += at[a][b] / static_cast<double>(options.future);
  }
  mean = product(turn, mean);
  sigma = product(product(turn, sigma), transposed(turn));
  Vector out;
  double sum = 0;
  for (std::size_t j = options.sinks; j < run.prompt; ++j) {
    const Vector key = row(run.keys[0], j, 3);
    double logit = kScale * dot(mean, key);
    if (options.covariance) logit += kScale * kScale * dot(key, product(sigma, key)) / 2;
    out.push_back(std::exp(logit));
    sum += out.back();
  }
  for (double& x : out) x /= sum;
  return out;
}

double score(const Options& options, const Run& run, Position position) {
  const auto j = static_cast<std::size_t>(position);
  if (j < options.sinks) return INFINITY;
  double mean = 0;
  for (std::size_t head = 0; head < run.queries.size(); ++head)
    mean += expected(options, run, head)[j - options.sinks] / static_cast<double>(run.queries.size());
  const Vector value = row(run.values[0], j, 2);
  return options.value_norm ? (mean + options.epsilon) * std::hypot(value[0], value[1]) : mean;
}

/// Fills keys and queries with values of both signs, unlike random_run.
Run centred_run(const Shape& shape, std::uint64_t seed) {
  Run run = random_run(shape, seed);
  for (auto* tensor : {&run.queries, &run.keys, &run.values})
    for (std::vector<float>& rows : *tensor)
      for (float& x : rows) x = 6 * x - 3;
  return run;
}

}  // namespace

TEST_CASE("the statistics of future queries, worked by hand") {
  // One pair, a quarter turn per position. Queries at 0, 1, 2 as attention used them; without rotation they
  // are (2, 0), (4, 0), (0, 0): mean (2, 0), variance 8/3 of the first component.
  const float quarter = 1.5707963F;
  const std::vector<float> queries = {2, 0, 0, 4, 0, 0};
  const Rotary rotary{.inv_freq = {&quarter, 1}};
  // The next position, 3, turns by three quarters: (2, 0) to (0, -2), and the variance to the second
  // component.
  const ExpectedQueries next({queries.data(), 3, 2, 2}, 0, 0, rotary, 1, true);
  CHECK(next.mean()[0] == Approx(0).margin(1e-6));
  CHECK(next.mean()[1] == Approx(-2));
  CHECK(next.covariance()[0] == Approx(0).margin(1e-6));
  CHECK(next.covariance()[3] == Approx(8.0 / 3));
  // A key (0, 1), scale 0.5: 0.5 * -2 + 0.25 / 2 * 8/3.
  CHECK(next.logit(std::vector<float>{0, 1}, 0.5) == Approx(-1 + 1.0 / 3));
  // Over four positions the turns cancel.
  const ExpectedQueries round({queries.data(), 3, 2, 2}, 0, 0, rotary, 4, true);
  for (const double x : round.mean()) CHECK(x == Approx(0).margin(1e-6));
  for (const double x : round.covariance()) CHECK(x == Approx(0).margin(1e-6));
  // Without the first: (4, 0) and (0, 0) have the same mean and variance 4.
  const ExpectedQueries two({queries.data(), 3, 2, 2}, 1, 0, rotary, 1, true);
  CHECK(two.mean()[1] == Approx(-2));
  CHECK(two.covariance()[3] == Approx(4));
  CHECK(ExpectedQueries({queries.data(), 3, 2, 2}, 1, 0, rotary, 1, false).covariance().empty());
}

TEST_CASE("interleaved pairs and the attention factor are turned like the model's") {
  // Repeated queries of one position have no variance, and their expectation at that position is the query
  // itself, up to a rotation by `future` = 1 step, which rotate() applies.
  const std::vector<float> inv_freq = {0.4F, 0.03F};
  for (const RotaryLayout layout : {RotaryLayout::half_split, RotaryLayout::interleaved}) {
    const Rotary rotary{.inv_freq = inv_freq, .layout = layout, .attention_factor = 1.25};
    const std::vector<float> plain = {1, -2, 3, 4, 0.5F};
    std::vector<float> queries, next = plain;
    for (std::uint64_t position = 0; position < 3; ++position) {
      std::vector<float> turned = plain;
      rotate(rotary, position, 5, turned);
      queries.insert(queries.end(), turned.begin(), turned.end());
    }
    rotate(rotary, 3, 5, next);
    const ExpectedQueries guess({queries.data(), 3, 5, 5}, 0, 0, rotary, 1, true);
    for (std::size_t c = 0; c < 5; ++c)
      CHECK(guess.mean()[c] == Approx(static_cast<double>(next[c])).margin(1e-5));
    for (const double x : guess.covariance()) CHECK(x == Approx(0).margin(1e-5));
  }
}

TEST_CASE("expected_attention agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Options options{.sinks = seed % 5,
                          .future = seed % 3 == 0 ? 512U : 1 + seed,
                          .covariance = seed % 2 == 0,
                          .value_norm = seed % 4 != 1,
                          .epsilon = seed % 4 == 2 ? 0.25 : 0};
    const Run run = centred_run(
        {.prompt = 6 + seed % 9, .decode = 2, .n_lanes = 1, .group = 1 + static_cast<int>(seed % 3)}, seed);
    const SlowRule rule{
        .score = [options](const Run& r, const Attended&, Position j) { return score(options, r, j); },
        .sinks = options.sinks,
        .decodes = false};
    const std::string policy = "expected_attention(sinks=" + std::to_string(options.sinks) +
                               ",future=" + std::to_string(options.future) +
                               ",covariance=" + (options.covariance ? "true" : "false") +
                               ",value_norm=" + (options.value_norm ? "true" : "false") +
                               ",epsilon=" + std::to_string(options.epsilon) + ")";
    for (std::size_t budget = options.sinks + 1; budget < run.prompt + 1; ++budget) {
      CAPTURE(policy, seed, budget);
      const Fed slow = feed_slowly(rule, run, budget), fast = feed(policy, run, budget);
      CHECK(fast.kept == slow.kept);
      CHECK(fast.held == slow.held);
    }
  }
}

TEST_CASE("a prompt of sinks alone is kept") {
  const Run run = random_run({.prompt = 4, .decode = 1, .n_lanes = 1, .group = 1}, 1);
  CHECK(feed("expected_attention", run, 5).kept == Positions{0, 1, 2, 3});
}

}  // namespace kvsim::policy::test::test_eviction_expected_attention
