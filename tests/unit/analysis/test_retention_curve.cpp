// R(n), ISR(n) and its slope: worked by hand, and what holds for every importance.
#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/kinds/retention_curve.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::test_retention_curve {

using analysis::RetentionCurve;

namespace {

std::vector<double> harmonic(std::size_t n) {
  std::vector<double> w;
  for (std::size_t k = 1; k <= n; ++k) w.push_back(1.0 / static_cast<double>(k));
  return w;
}

}  // namespace

TEST_CASE("retention worked by hand") {
  // Sorted 4 3 2 1, sum 10.
  const RetentionCurve curve(std::vector<double>{1, 4, 2, 3});
  CHECK(curve.size() == 4);
  CHECK(*curve.retained(0) == 0);
  CHECK(*curve.retained(1) == 0.4);
  CHECK(*curve.retained(2) == 0.7);
  CHECK(*curve.retained(4) == 1);
  CHECK_FALSE(curve.per_bit(0));
  CHECK_FALSE(curve.per_bit(1));
  CHECK(*curve.per_bit(2) == 0.7);
  CHECK(*curve.per_bit(4) == 0.5);
  CHECK_FALSE(curve.slope(2));
  CHECK(*curve.slope(3) == Approx(0.9 / std::log2(3) - 0.7));
  CHECK(*curve.slope(4) == Approx(0.5 - 0.9 / std::log2(3)));
  CHECK(*curve.size_for(0) == 0);
  CHECK(*curve.size_for(0.4) == 1);
  CHECK(*curve.size_for(0.41) == 2);
  CHECK(*curve.size_for(1) == 4);
}

TEST_CASE("ten equal tenths: rounding does not ask for one more") {
  const RetentionCurve curve(std::vector<double>(10, 0.1));
  for (std::size_t n = 0; n <= 10; ++n) CHECK(*curve.size_for(static_cast<double>(n) / 10) == n);
}

TEST_CASE("the slope of uniform importance rises from n = 4 on") {
  // R(n) = n / M, and n / log2 n grows for n >= 4: 4 / 2 = 2 > 3 / 1.585; not from 2 to 3.
  const RetentionCurve curve(std::vector<double>(300, 0.25));
  CHECK(*curve.slope(3) < 0);
  for (std::size_t n = 4; n <= 300; ++n) CHECK(*curve.slope(n) > 0);
  CHECK(*curve.last_slope(0) == 300);
  CHECK_FALSE(curve.last_slope(1));
}

TEST_CASE("the slope of w = 1 / k rises towards zero from below") {
  const RetentionCurve curve(harmonic(4000));
  const double sum = std::log(4000) + 0.5772156649;  // of 1 / k, nearly
  // (11 / 6) / log2 3 - 3 / 2 = -0.34330, over the sum.
  CHECK(*curve.slope(3) == Approx(-0.34330 / sum).epsilon(1e-3));
  for (std::size_t n = 4; n <= 4000; ++n) {
    CHECK(*curve.slope(n) < 0);
    CHECK(*curve.slope(n) > *curve.slope(n - 1));
  }
  CHECK_FALSE(curve.last_slope(0));
  // Any negative slope is exceeded by the end.
  CHECK(*curve.last_slope(-0.01) == 4000);
}

TEST_CASE("the first slope is negative, whatever the importance") {
  // R(3) / R(2) is at most 3 / 2, log2 3 is 1.585.
  for (std::uint64_t draw = 0; draw < 200; ++draw) {
    std::vector<double> w;
    for (std::uint64_t j = 0; j < 3 + draw % 20; ++j) w.push_back(std::exp(3 * normal(combine({draw, j}))));
    const RetentionCurve curve(w);
    CHECK(*curve.slope(3) < 0);
    for (std::size_t n = 1; n <= curve.size(); ++n) CHECK(*curve.retained(n) > *curve.retained(n - 1));
    for (std::size_t n = 2; n < curve.size(); ++n)
      CHECK(*curve.retained(n + 1) - *curve.retained(n) <=
            *curve.retained(n) - *curve.retained(n - 1) + 1e-12);
  }
}

TEST_CASE("one position that takes all, and none that takes anything") {
  const RetentionCurve one(std::vector<double>{0, 5, 0, 0});
  CHECK(*one.retained(1) == 1);
  CHECK(*one.size_for(1) == 1);
  CHECK_FALSE(one.last_slope(0));
  const RetentionCurve none(std::vector<double>(4, 0.0));
  for (std::size_t n = 0; n <= 4; ++n) {
    CHECK_FALSE(none.retained(n));
    CHECK_FALSE(none.per_bit(n));
    CHECK_FALSE(none.slope(n));
  }
  CHECK_FALSE(none.size_for(0.5));
  CHECK_FALSE(none.last_slope(0));
}

}  // namespace kvsim::test_retention_curve
