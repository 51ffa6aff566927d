// Leverage: compactor's part that keys decide, and cap_kv's.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "policies/parts/rows/compactor_scores.hpp"
#include "sim/base/rng.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_compactor {

using Positions = std::vector<Position>;
using Vector = std::vector<double>;

namespace {

/// The solution of a x = b by Gauss's elimination with pivots.
Vector solved(std::vector<Vector> a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r)
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    std::swap(a[c], a[pivot]);
    std::swap(b[c], b[pivot]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == c) continue;
      const double factor = a[r][c] / a[c][c];
      for (std::size_t k = c; k < n; ++k) a[r][k] -= factor * a[c][k];
      b[r] -= factor * b[c];
    }
  }
  for (std::size_t c = 0; c < n; ++c) b[c] /= a[c][c];
  return b;
}

double product(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

/// x (A + the sum of w x'x)^-1 x of each row, A being `ridge` times the identity.
Vector slow_leverages(const std::vector<Vector>& rows, const Vector& weights, double ridge) {
  const std::size_t dim = rows[0].size();
  std::vector<Vector> moments(dim, Vector(dim));
  for (std::size_t a = 0; a < dim; ++a) {
    for (std::size_t b = 0; b < dim; ++b)
      for (std::size_t j = 0; j < rows.size(); ++j) moments[a][b] += weights[j] * rows[j][a] * rows[j][b];
    moments[a][a] += ridge;
  }
  Vector out;
  for (const Vector& row : rows) out.push_back(product(row, solved(moments, row)));
  return out;
}

Vector row_of(const std::vector<float>& rows, std::size_t j, std::size_t dim) {
  return {rows.begin() + static_cast<std::ptrdiff_t>(j * dim),
          rows.begin() + static_cast<std::ptrdiff_t>((j + 1) * dim)};
}

/// A vector of the run as it would be `turns` positions further on: components 0 and 1 turn.
Vector turned(Vector x, const Run& run, double turns) {
  const double angle = turns * static_cast<double>(run.inv_freq[0]), a = x[0], b = x[1];
  x[0] = a * std::cos(angle) - b * std::sin(angle);
  x[1] = a * std::sin(angle) + b * std::cos(angle);
  return x;
}

Vector standard(Vector x) {
  double mean = 0, squares = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) squares += (v - mean) * (v - mean);
  for (double& v : x) v = (v - mean) / std::sqrt(squares / static_cast<double>(x.size() - 1));
  return x;
}

std::vector<double> scores_of(const std::string& policy, const Run& run) {
  const auto eviction = parse_composition(policy, builtin()).eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  return {eviction->scores().begin(), eviction->scores().end()};
}

}  // namespace

TEST_CASE("leverages by hand") {
  // Moments 4 + 1 and 1 + 1 with a ridge of 1: (2, 0) has 4 / 6, (0, 1) 1 / 3; the second (1, 1) 1/6 + 1/3.
  CHECK(leverages(Vector{2, 0, 0, 1, 1, 0}, 2, 1)[0] == Approx(4.0 / 6));
  CHECK(leverages(Vector{2, 0, 0, 1, 1, 0}, 2, 1)[1] == Approx(1.0 / 2));
  CHECK(leverages(Vector{2, 0, 0, 1, 1, 0}, 2, 1)[2] == Approx(1.0 / 6));
  // Without the ridge they would sum up to the rank; a row alone has x^2 / (x^2 + ridge).
  CHECK(leverages(Vector{3}, 1, 1)[0] == Approx(0.9));
  CHECK(leverages(Vector{0, 0, 0}, 3, 1)[0] == 0);
}

TEST_CASE("leverages agree with an elimination") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::size_t n = 1 + seed, dim = 1 + seed % 5;
    std::vector<Vector> rows(n, Vector(dim));
    Vector flat;
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t c = 0; c < dim; ++c) flat.push_back(rows[j][c] = normal(combine({seed, j, c})));
    const Vector got = leverages(flat, dim, 0.1), expected = slow_leverages(rows, Vector(n, 1), 0.1);
    for (std::size_t j = 0; j < n; ++j) CHECK(got[j] == Approx(expected[j]));
  }
}

TEST_CASE(
    "compactor without a sketch agrees with its definition: leverage of keys as they were before rotation") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 12 + seed, .decode = 0, .n_lanes = 1, .group = 2}, seed);
    const std::size_t first = 2, end = run.prompt - 1, n = end - first, chunk = 5;
    const auto dim = static_cast<std::size_t>(run.unit.head_dim),
               of = static_cast<std::size_t>(run.unit.value_dim);
    std::vector<Vector> keys;
    Vector mean(dim);
    for (std::size_t j = first; j < end; ++j)
      keys.push_back(turned(row_of(run.keys[0], j, dim), run, -static_cast<double>(j)));
    for (const Vector& key : keys)
      for (std::size_t c = 0; c < dim; ++c) mean[c] += key[c] / static_cast<double>(n);
    for (Vector& key : keys)
      for (std::size_t c = 0; c < dim; ++c) key[c] -= mean[c];
    const Vector leverage = standard(slow_leverages(keys, Vector(n, 1), 0.01));
    Vector attended(n);
    for (std::size_t j = 0; j < n; ++j) {
      const Vector value = row_of(run.values[0], first + j, of);
      for (std::size_t g = 0; g < 2; ++g)
        for (std::size_t i = j / chunk * chunk; i < std::min(n, (j / chunk + 1) * chunk); ++i) {
          double all = 0;
          const auto weight = [&](std::size_t k) {
            return std::exp(
                product(row_of(run.queries[g], first + i, dim), row_of(run.keys[0], first + k, dim)));
          };
          for (std::size_t k = j / chunk * chunk; k < std::min(n, (j / chunk + 1) * chunk); ++k)
            all += weight(k);
          attended[j] += weight(j) / all / 2 * std::sqrt(product(value, value));
        }
    }
    Vector smooth(n);
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t i = j == 0 ? 0 : j - 1; i < std::min(n, j + 2); ++i) smooth[j] += attended[i] / 3;
    smooth = standard(smooth);
    const std::vector<double> got = scores_of("compactor(sketch=0,sinks=2,window=1,chunk=5,blend=0.7)", run);
    for (std::size_t j = 0; j < n; ++j)
      CHECK(got[first + j] == Approx(0.7 * leverage[j] + smooth[j]).margin(1e-4));
  }
}

TEST_CASE("compactor at its limits") {
  const Run run = random_run({.prompt = 40, .decode = 3, .n_lanes = 1, .group = 2}, 3);
  // Without leverage it keeps what non_causal keeps of the tokens between sinks and window.
  const Fed fed = feed("compactor(blend=0,sinks=0,window=0)", run, 10);
  CHECK(fed.held == feed("non_causal(sinks=0)", run, 10).held);
  // A sketch keeps lengths in the mean over draws.
  Vector mean(40);
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Run drawn = run;
    drawn.unit.seed = seed;
    const auto scores = scores_of("compactor(blend=100,sketch=2,sinks=0,window=0)", drawn);
    for (std::size_t j = 0; j < 40; ++j) mean[j] += scores[j] / 400;
  }
  const auto exact = scores_of("compactor(blend=100,sketch=0,sinks=0,window=0)", run);
  double shared = 0, a = 0, b = 0;
  for (std::size_t j = 0; j < 40; ++j) {
    shared += mean[j] * exact[j];
    a += mean[j] * mean[j];
    b += exact[j] * exact[j];
  }
  CHECK(shared / std::sqrt(a * b) > 0.8);
  CHECK(feed("compactor", run, 12).kept.size() == 12);
  const Run brief = random_run({.prompt = 5, .decode = 0, .n_lanes = 1, .group = 1}, 3);
  CHECK(feed("compactor(sinks=3,window=4)", brief, 7).kept.size() == 5);
}

TEST_CASE("cap_kv agrees with its definition") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Run run = random_run({.prompt = 6 + seed, .decode = 0, .n_lanes = 1, .group = 2}, seed);
    const auto dim = static_cast<std::size_t>(run.unit.head_dim),
               of = static_cast<std::size_t>(run.unit.value_dim);
    const std::size_t sinks = 2, n = run.prompt - sinks;
    Vector expected(n);
    for (std::size_t g = 0; g < 2; ++g) {
      Vector anchor(dim);
      for (std::size_t i = sinks; i < run.prompt; ++i) {
        const Vector before = turned(row_of(run.queries[g], i, dim), run, -static_cast<double>(i));
        for (std::size_t t = 0; t < 3; ++t) {
          const Vector later = turned(before, run, static_cast<double>(run.prompt + t));
          for (std::size_t c = 0; c < dim; ++c) anchor[c] += later[c] / 3 / static_cast<double>(n);
        }
      }
      Vector weights;
      for (std::size_t j = 0; j < n; ++j) {
        const Vector key = row_of(run.keys[0], sinks + j, dim);
        weights.push_back(4 * product(key, anchor) / std::sqrt(product(key, key) * product(anchor, anchor)));
      }
      const double most = *std::max_element(weights.begin(), weights.end());
      std::vector<Vector> values;
      for (std::size_t j = 0; j < n; ++j) {
        weights[j] = std::exp(weights[j] - most);
        values.push_back(row_of(run.values[0], sinks + j, of));
      }
      Vector least = weights;
      for (double& w : least) w += 1e-6;
      const Vector leverage = slow_leverages(values, least, 1);
      for (std::size_t j = 0; j < n; ++j) expected[j] += weights[j] * leverage[j] / 2;
    }
    const std::vector<double> got = scores_of("cap_kv(sinks=2,future=3,tau=4)", run);
    for (std::size_t j = 0; j < n; ++j) CHECK(got[sinks + j] == Approx(expected[j]).epsilon(1e-4));
  }
}

TEST_CASE("cap_kv by hand: of equal relevance, the value that stands alone stays") {
  Run run = blank_run({.prompt = 4, .decode = 0, .n_lanes = 1, .group = 1});
  const auto dim = static_cast<std::size_t>(run.unit.head_dim),
             of = static_cast<std::size_t>(run.unit.value_dim);
  std::fill(run.values[0].begin(), run.values[0].end(), 0.0F);
  for (std::size_t j = 0; j < 4; ++j) {
    run.keys[0][j * dim + 2] = 1;  // the component that does not turn
    run.queries[0][j * dim + 2] = 1;
    run.values[0][j * of + (j == 2 ? 1 : 0)] = 1;
  }
  // A = diag(1 + 3, 1 + 1, 1): values of the first component have 1/4, the other 1/2.
  const std::vector<double> scores = scores_of("cap_kv(sinks=0)", run);
  CHECK(scores[0] == Approx(0.25).epsilon(1e-4));
  CHECK(scores[2] == Approx(0.5).epsilon(1e-4));
  CHECK(feed("cap_kv(sinks=0)", run, 1).kept == Positions{2});
  CHECK(feed("cap_kv(sinks=1)", run, 2).kept == Positions{0, 2});
}

}  // namespace kvsim::policy::test::test_eviction_compactor
