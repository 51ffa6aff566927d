// Tests the correlation of SimHash with attention: Pearson's correlation, that of noise, and that of a trace.
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/parts/index/fingerprints.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/inspect/hash_correlation.hpp"
#include "tests/support/random_trace.hpp"
#include "tests/support/slow_replay.hpp"

namespace kvsim::test_hash_correlation {
namespace {

std::vector<sim::HashCorrelation> study(const trace::MemoryTrace& trace, const sim::HashStudy& wanted) {
  Progress progress;
  return sim::hash_correlation(trace::Sequence(trace), wanted, progress);
}

/// Pearson's correlation by another formula: n sum xy - sum x sum y over the roots of the same for squares.
double slow_pearson(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxy = 0, sxx = 0, syy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sx += x[i], sy += y[i];
    sxy += x[i] * y[i], sxx += x[i] * x[i], syy += y[i] * y[i];
  }
  return (n * sxy - sx * sy) / std::sqrt((n * sxx - sx * sx) * (n * syy - sy * sy));
}

}  // namespace

TEST_CASE("isotropic noise alone correlates with hashes, more so with longer ones") {
  // 120 keys of 64 components, 600 draws, 120 projections. The expected values are from 3,000 draws of an
  // independent program.
  const trace::MemoryTrace trace = test::random_trace(
      {.layers = 6, .kv_heads = 20, .group = 5, .head_dim = 64, .prompt = 120, .decode = 0, .sharpness = 1});
  const auto result = study(trace, {.bits = {8, 16, 24, 32, 64}, .threads = 2});
  const double expected[] = {0.180, 0.243, 0.294, 0.332, 0.434};
  for (std::size_t i = 0; i < result.size(); ++i) {
    CAPTURE(result[i].bits);
    CHECK(result[i].noise.defined == 600);
    CHECK(result[i].noise.undefined == 0);
    CHECK(*result[i].noise.mean == Approx(expected[i]).margin(0.015));
    // Correlations of 120 independent pairs spread by about 1 / sqrt(120) = 0.09.
    CHECK(*result[i].noise.spread == Approx(0.09).margin(0.03));
    // This trace is pure noise too.
    CHECK(*result[i].trace.mean == Approx(*result[i].noise.mean).margin(0.02));
  }
}

TEST_CASE("hash correlation agrees with its definition") {
  const test::TraceShape shape{
      .layers = 2, .kv_heads = 2, .group = 2, .prompt = 40, .decode = 3, .layer_window = {-1, 13}};
  const trace::MemoryTrace trace = test::random_trace(shape);
  const trace::Sequence sequence(trace);
  const sim::HashStudy wanted{.bits = {24, 4}, .projections = 3, .skip = 2, .seed = 9, .threads = 2};
  const auto result = study(trace, wanted);
  for (std::size_t length = 0; length < 2; ++length) {
    std::vector<double> all;
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      for (std::uint32_t head = 0; head < 4; ++head) {
        const test::Rows a = test::attention(sequence, layer, head);
        const test::Rows q = test::read_all(sequence, trace::Tensor::query, layer, head),
                         k = test::read_all(sequence, trace::Tensor::key, layer, head / 2);
        std::vector<double> x, y;
        for (std::size_t j = layer == 0 ? 2 : 40 - 13; j < 40; ++j) {
          double distance = 0;
          for (std::uint64_t p = 0; p < 3; ++p) {
            const std::uint64_t key = combine({combine({9, key_of("hash correlation"), layer, head / 2}), p});
            for (std::uint64_t b = 0; b < wanted.bits[length]; ++b) {
              double of_query = 0, of_key = 0;
              for (std::size_t c = 0; c < 8; ++c) {
                of_query += normal(combine({key, b, c})) * q[39][c];
                of_key += normal(combine({key, b, c})) * k[j][c];
              }
              distance += (of_query >= 0) != (of_key >= 0) ? 1 : 0;
            }
          }
          x.push_back(a[39][j]);
          y.push_back(1 - distance / 3 / static_cast<double>(wanted.bits[length]));
        }
        all.push_back(slow_pearson(x, y));
      }
    }
    double mean = 0, squares = 0;
    for (const double r : all) mean += r / 8;
    for (const double r : all) squares += (r - mean) * (r - mean) / 8;
    CHECK(result[length].bits == wanted.bits[length]);
    CHECK(result[length].trace.defined == 8);
    CHECK(*result[length].trace.mean == Approx(mean).margin(1e-5));
    CHECK(*result[length].trace.spread == Approx(std::sqrt(squares)).margin(1e-5));
  }
}

TEST_CASE("the mean over all heads is that of the correlations per layer and per head") {
  const trace::MemoryTrace trace = test::random_trace(
      {.layers = 3, .kv_heads = 2, .group = 2, .prompt = 40, .layer_window = {-1, 13, -1}});
  const sim::HashStudy wanted{.bits = {24, 4}, .projections = 2, .skip = 1, .seed = 3};
  const auto per = [&](sim::HashScope scope) {
    sim::HashStudy of = wanted;
    of.per = scope;
    return study(trace, of);
  };
  const auto all = per(sim::HashScope::all), layers = per(sim::HashScope::layer),
             heads = per(sim::HashScope::head);
  REQUIRE(all.size() == 2);
  REQUIRE(layers.size() == 3 * 2);
  REQUIRE(heads.size() == 3 * 4 * 2);
  for (std::size_t length = 0; length < 2; ++length) {
    double trace_sum = 0, noise_sum = 0;
    for (std::size_t layer = 0; layer < 3; ++layer) {
      double of_layer = 0;
      for (std::size_t head = 0; head < 4; ++head) {
        const sim::HashCorrelation& one = heads[(layer * 4 + head) * 2 + length];
        CHECK(one.bits == wanted.bits[length]);
        CHECK(one.layer == layer);
        CHECK(one.head == head);
        CHECK(one.trace.defined == 1);
        CHECK(*one.trace.spread == 0);
        of_layer += *one.trace.mean;
        noise_sum += *one.noise.mean;
      }
      const sim::HashCorrelation& of = layers[layer * 2 + length];
      CHECK(of.bits == wanted.bits[length]);
      CHECK(of.layer == layer);
      CHECK_FALSE(of.head);
      CHECK(of.trace.defined == 4);
      CHECK(*of.trace.mean == Approx(of_layer / 4));
      trace_sum += of_layer;
    }
    CHECK_FALSE(all[length].layer);
    CHECK(*all[length].trace.mean == Approx(trace_sum / 12));
    CHECK(*all[length].noise.mean == Approx(noise_sum / 12));
  }
  // The correlation of one head by the other formula, over 40 positions but the first, of the last layer.
  const trace::Sequence sequence(trace);
  const test::Rows a = test::attention(sequence, 2, 3);
  const test::Rows q = test::read_all(sequence, trace::Tensor::query, 2, 3),
                   k = test::read_all(sequence, trace::Tensor::key, 2, 1);
  std::vector<double> x, y;
  for (std::size_t j = 1; j < 40; ++j) {
    double distance = 0;
    for (std::uint64_t p = 0; p < 2; ++p) {
      const std::uint64_t key =
          combine({combine({3, key_of("hash correlation"), std::uint64_t{2}, std::uint64_t{1}}), p});
      for (std::uint64_t b = 0; b < 24; ++b) {
        double of_query = 0, of_key = 0;
        for (std::size_t c = 0; c < 8; ++c) {
          of_query += normal(combine({key, b, c})) * q[39][c];
          of_key += normal(combine({key, b, c})) * k[j][c];
        }
        distance += (of_query >= 0) != (of_key >= 0) ? 1 : 0;
      }
    }
    x.push_back(a[39][j]);
    y.push_back(1 - distance / 2 / 24);
  }
  CHECK(*heads[(2 * 4 + 3) * 2].trace.mean == Approx(slow_pearson(x, y)).margin(1e-5));
}

TEST_CASE("constant attention or distance counts as undefined, not as zero") {
  trace::MemoryTrace trace = test::random_trace({.layers = 1, .kv_heads = 3, .group = 1, .prompt = 10});
  // Head 1: all keys are equal, so attention and distance are constant. Head 2: keys on one ray have equal
  // codes and different attention.
  for (float& x : trace.rows(trace::Tensor::key, 0, 1)) x = 0.5F;
  const std::span<float> ray = trace.rows(trace::Tensor::key, 0, 2);
  for (std::size_t i = 0; i < ray.size(); ++i) ray[i] = static_cast<float>(1 + i / 8);
  const auto result = study(trace, {.bits = {16}});
  CHECK(result[0].trace.defined == 1);
  CHECK(result[0].trace.undefined == 2);
  CHECK(*result[0].trace.spread == 0);
  CHECK(result[0].noise.defined == 3);
  // With one position left, then none, nothing is defined, and no number stands for it.
  for (const std::size_t skip : {9U, 10U, 500U}) {
    const auto none = study(trace, {.bits = {16}, .skip = skip});
    CHECK(none[0].trace.undefined == 3);
    CHECK(none[0].noise.undefined == 3);
    CHECK_FALSE(none[0].trace.mean);
    CHECK_FALSE(none[0].trace.spread);
  }
}

TEST_CASE("hash correlation depends on the seed and not on threads or on other lengths") {
  const trace::MemoryTrace trace = test::random_trace({.prompt = 30});
  const auto means = [&](const sim::HashStudy& wanted) {
    std::vector<double> out;
    for (const sim::HashCorrelation& r : study(trace, wanted)) {
      out.push_back(*r.trace.mean);
      out.push_back(*r.noise.mean);
    }
    return out;
  };
  const auto one = means({.bits = {16}, .seed = 1, .threads = 1});
  CHECK(means({.bits = {16}, .seed = 1, .threads = 2}) == one);
  const auto among = means({.bits = {64, 16, 3}, .seed = 1});
  CHECK(std::vector(among.begin() + 2, among.begin() + 4) == one);
  CHECK(means({.bits = {16}, .seed = 2}) != one);
  CHECK(means({.bits = {16}, .projections = 2, .seed = 1}) != one);
}

TEST_CASE("a study that is empty or out of range is refused") {
  const trace::MemoryTrace trace = test::random_trace({});
  CHECK_THROWS_AS(study(trace, {.bits = {}}), Error);
  CHECK_THROWS_WITH(study(trace, {.bits = {8, 0}}), Catch::Contains("1 to 64 bits, not 0"));
  CHECK_THROWS_WITH(study(trace, {.bits = {65}}), Catch::Contains("not 65"));
  CHECK_THROWS_AS(study(trace, {.bits = {8}, .projections = 0}), Error);
}

}  // namespace kvsim::test_hash_correlation
