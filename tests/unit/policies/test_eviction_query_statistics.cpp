// Scores by what is known of queries: q_filters and query_frequencies, measured on other runs or on the
// prompt.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>

#include "policies/builtin.hpp"
#include "tests/unit/policies/memory_calibration.hpp"
#include "tests/unit/policies/slow_reference.hpp"

namespace kvsim::policy::test::test_eviction_query_statistics {

using Positions = std::vector<Position>;
using Vector = std::vector<double>;
using Complex = std::complex<double>;

namespace {

Vector scores_of(const std::string& policy, const Run& run) {
  const auto eviction = parse_composition(policy, builtin()).eviction.make_eviction(run.unit);
  feed_prompt(*eviction, run);
  return {eviction->scores().begin(), eviction->scores().end()};
}

double at(const std::vector<float>& rows, std::size_t i, std::size_t c) {
  return static_cast<double>(rows[i * 3 + c]);
}

/// Components 0 and 1 as they were before rotation.
Complex plain(const Run& run, const std::vector<float>& rows, std::size_t i) {
  const auto angle = static_cast<double>(static_cast<float>(i) * run.inv_freq[0]);
  return Complex(at(rows, i, 0), at(rows, i, 1)) * std::polar(1.0, -angle);
}

/// What is known of a query head with one frequency and a component that does not turn.
struct Known {
  Complex mean;
  double length = 0, still = 0;
};

Known measured(const Run& run, std::size_t head, const Positions& of) {
  Known out;
  const auto n = static_cast<double>(of.size());
  for (const Position i : of) {
    const Complex q = plain(run, run.queries[head], static_cast<std::size_t>(i));
    out.mean += q / n;
    out.length += std::abs(q) / n;
    out.still += at(run.queries[head], static_cast<std::size_t>(i), 2) / n;
  }
  return out;
}

/// TriAttention's score of keys at positions, offset after offset.
Vector slow_scores(const Run& run, const std::vector<Known>& heads, const Positions& of, std::size_t reach) {
  Vector out(of.size(), -1e300);
  const double next = of.back() + 1, frequency = static_cast<double>(run.inv_freq[0]);
  for (const Known& known : heads) {
    Vector scores;
    for (const Position p : of) {
      const Complex key = plain(run, run.keys[0], static_cast<std::size_t>(p));
      double sum = 0, offsets = 0;
      for (std::size_t offset = 1; offset <= reach; offset *= 2, ++offsets)
        sum += std::abs(known.mean) * std::abs(key) *
               std::cos((next - p + static_cast<double>(offset)) * frequency +
                        std::arg(known.mean * std::conj(key)));
      scores.push_back(sum / offsets + (known.length - std::abs(known.mean)) * std::abs(key) +
                       known.still * at(run.keys[0], static_cast<std::size_t>(p), 2));
    }
    double mean = 0, squares = 0;
    for (const double x : scores) mean += x / static_cast<double>(scores.size());
    for (const double x : scores) squares += (x - mean) * (x - mean) / static_cast<double>(scores.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = std::max(out[i], (scores[i] - mean) / std::sqrt(squares));
  }
  return out;
}

Positions first(std::size_t n) {
  Positions out;
  for (std::size_t i = 0; i < n; ++i) out.push_back(static_cast<Position>(i));
  return out;
}

Run turning_run(std::uint64_t seed, std::size_t prompt, std::size_t decode) {
  Run run = random_run({.prompt = prompt, .decode = decode, .n_lanes = 1, .group = 2}, seed);
  run.inv_freq = {0.3F};
  for (auto* tensor : {&run.keys, &run.queries})
    for (std::vector<float>& rows : *tensor)
      for (float& x : rows) x = 4 * x - 1.5F;
  return run;
}

}  // namespace

TEST_CASE("q_filters by hand: keys along the queries' direction stay") {
  // One head's queries lie along the first axis, the other's against the second: the filter is (1/2, -1/2,
  // 0).
  Run run = blank_run({.prompt = 4, .decode = 2, .n_lanes = 1, .group = 2});
  for (std::size_t i = 0; i < 6; ++i) {
    run.queries[0][i * 3] = i == 1 ? -1 : 2;
    run.queries[1][i * 3 + 1] = -3;
  }
  const float keys[6][2] = {{4, 0}, {0, 4}, {2, 2}, {0, -2}, {-3, 0}, {1, 0}};
  for (std::size_t i = 0; i < 6; ++i)
    std::copy_n(keys[i], 2, run.keys[0].begin() + static_cast<std::ptrdiff_t>(i * 3));
  const Vector scores = scores_of("q_filters(window=0)", run);
  const double expected[4] = {2, -2, 0, 1};
  for (std::size_t j = 0; j < 4; ++j) CHECK(scores[j] == Approx(expected[j]).margin(1e-12));
  // Token 4 scores -3/2 and leaves as token 5 arrives.
  CHECK(feed("q_filters(window=0)", run, 3).held == std::vector<Positions>{{0, 3, 4}, {0, 3, 5}});
  CHECK(feed("q_filters(window=0,decode=false)", run, 3).held.back() == Positions{0, 2, 3, 4, 5});
}

TEST_CASE("q_filters are the first singular vectors of the queries that were measured") {
  const NoiseRuns shape{.runs = 2, .tokens = 30, .n_lanes = 2, .dim = 3, .group = 2, .inv_freq = {0.5F}};
  const MemoryCalibration file("q_filters", shape);
  for (std::size_t lane = 0; lane < 2; ++lane) {
    Vector filter(3);
    for (std::size_t head = 2 * lane; head < 2 * lane + 2; ++head) {
      Vector products(9), sum(3);
      for (std::size_t run = 0; run < 2; ++run)
        for (std::size_t i = 0; i < 30; ++i)
          for (std::size_t a = 0; a < 3; ++a) {
            sum[a] += static_cast<double>(file.query(run, i, head, a));
            for (std::size_t b = 0; b < 3; ++b)
              products[a * 3 + b] += static_cast<double>(file.query(run, i, head, a)) *
                                     static_cast<double>(file.query(run, i, head, b));
          }
      const Vector vectors = slow_eigenvectors(products, 3);
      double along = 0;
      for (std::size_t c = 0; c < 3; ++c) along += sum[c] * vectors[c];
      for (std::size_t c = 0; c < 3; ++c) filter[c] += (along < 0 ? -0.5 : 0.5) * vectors[c];
    }
    for (std::size_t c = 0; c < 3; ++c)
      CHECK(static_cast<double>(file.tables().at("filters")[lane][c]) == Approx(filter[c]).margin(1e-5));
  }
  Run run = random_run({.prompt = 8, .decode = 4, .n_lanes = 1, .group = 2}, 3);
  run.unit.tables = &file;
  const Vector scores = scores_of("q_filters(file=x,window=0)", run);
  for (std::size_t j = 0; j < 8; ++j) {
    double expected = 0;
    for (std::size_t c = 0; c < 3; ++c)
      expected += static_cast<double>(file.tables().at("filters")[0][c]) * at(run.keys[0], j, c);
    CHECK(scores[j] == Approx(expected));
  }
}

TEST_CASE("query_frequencies by hand: a key counts by where the mean query will stand") {
  // A quarter turn per position. The mean query before rotation is (1, 0), queries are 3 long, and the one
  // position ahead of the next, 2, is 3: the mean query will be (0, -1). Keys (0, -1), (2, 0): products 1 and
  // 0, and 2 times their lengths 1 and 2, are 3 and 4.
  const float quarter = 1.5707963F;
  const MemoryCalibration file({{"mean_query", {{1, 0, 0}}}, {"mean_length", {{3}}}});
  Run run = blank_run({.prompt = 2, .decode = 0, .n_lanes = 1, .group = 1});
  run.unit.tables = &file;
  run.inv_freq = {quarter};
  run.keys[0] = {0, -1, 0, 2, 0, 0};
  const std::string policy = "query_frequencies(file=x,reach=1)";
  CHECK(feed(policy, run, 1).kept == Positions{1});
  const Vector scores = scores_of(policy, run);
  CHECK(scores[0] == Approx(-1));
  CHECK(scores[1] == Approx(1));
  // Shorter queries leave nothing but the product.
  const MemoryCalibration still({{"mean_query", {{1, 0, 0}}}, {"mean_length", {{1}}}});
  run.unit.tables = &still;
  CHECK(feed(policy, run, 1).kept == Positions{0});
}

TEST_CASE("query_frequencies measures as its definition does") {
  const NoiseRuns shape{.runs = 2, .tokens = 25, .n_lanes = 1, .dim = 3, .group = 2, .inv_freq = {0.3F}};
  const MemoryCalibration file("query_frequencies", shape);
  std::vector<Known> heads(2);
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t run = 0; run < 2; ++run)
      for (std::size_t i = 0; i < 25; ++i) {
        const auto angle = static_cast<double>(static_cast<float>(i) * 0.3F);
        const Complex q = Complex(static_cast<double>(file.query(run, i, head, 0)),
                                  static_cast<double>(file.query(run, i, head, 1))) *
                          std::polar(1.0, -angle);
        heads[head].mean += q / 50.0;
        heads[head].length += std::abs(q) / 50;
        heads[head].still += static_cast<double>(file.query(run, i, head, 2)) / 50;
      }
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Run run = turning_run(seed, 12, 0);
    run.unit.tables = &file;
    const Vector scores = scores_of("query_frequencies(file=x,reach=64)", run),
                 expected = slow_scores(run, heads, first(12), 64);
    for (std::size_t j = 0; j < 12; ++j) CHECK(scores[j] == Approx(expected[j]).margin(1e-4));
    const Vector own = scores_of("query_frequencies(reach=64)", run);
    const Vector of_prompt =
        slow_scores(run, {measured(run, 0, first(12)), measured(run, 1, first(12))}, first(12), 64);
    for (std::size_t j = 0; j < 12; ++j) CHECK(own[j] == Approx(of_prompt[j]).margin(1e-4));
  }
}

TEST_CASE("in rounds query_frequencies ranks the answer's tokens where they stand") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Run run = turning_run(seed, 5, 30);
    const Fed expected = feed_cutting(
        [&](const Attended& /*attended*/, std::set<Position>& held, std::size_t /*size*/,
            Position /*newest*/) {
          const Positions answer(held.lower_bound(5), held.end());
          const Vector scores =
              slow_scores(run, {measured(run, 0, answer), measured(run, 1, answer)}, answer, 64);
          std::vector<std::pair<double, Position>> order;
          for (std::size_t i = 0; i < answer.size(); ++i) order.emplace_back(scores[i], answer[i]);
          std::sort(order.begin(), order.end());
          for (std::size_t i = 0; i < 3; ++i) held.erase(order[i].second);
        },
        run, 13);
    CHECK(feed("periodic(base=query_frequencies(reach=64),interval=3,prompt=apart)", run, 13).held ==
          expected.held);
  }
}

}  // namespace kvsim::policy::test::test_eviction_query_statistics
