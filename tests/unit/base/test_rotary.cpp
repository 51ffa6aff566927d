// Rotation against its definition in complex numbers, and its inverse.
#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::test_rotary {

namespace {

std::vector<float> random_rows(std::size_t n, std::size_t dim, std::uint64_t seed) {
  std::vector<float> rows(n * dim);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(normal(combine({seed, i})));
  return rows;
}

/// Returns theta^(-i / pairs), the frequencies of models.
std::vector<float> frequencies(std::size_t pairs) {
  std::vector<float> out;
  for (std::size_t i = 0; i < pairs; ++i)
    out.push_back(
        static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs))));
  return out;
}

/// One row by the definition: pair i, read as a complex number, times factor * e^(i * angle).
std::vector<float> slow_rotation(const Rotary& rotary, std::uint64_t position, std::vector<float> row) {
  const std::size_t pairs = rotary.inv_freq.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const bool split = rotary.layout == RotaryLayout::half_split;
    const std::size_t real = split ? i : 2 * i, imaginary = split ? i + pairs : 2 * i + 1;
    const double angle = static_cast<double>(static_cast<float>(position) * rotary.inv_freq[i]);
    const std::complex<double> turned =
        std::complex<double>(row[real], row[imaginary]) * std::polar(rotary.attention_factor, angle);
    row[real] = static_cast<float>(turned.real());
    row[imaginary] = static_cast<float>(turned.imag());
  }
  return row;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

}  // namespace

TEST_CASE("a quarter turn per position, in both layouts") {
  const std::vector<float> quarter{static_cast<float>(std::numbers::pi / 2), 0.0F};
  const auto turned = [&](RotaryLayout layout, std::uint64_t position) {
    std::vector<float> row{1, 2, 3, 4, 5};
    rotate({quarter, layout, 2.0}, position, 5, row);
    for (float& value : row) value = std::round(value * 1e5F) / 1e5F;
    return row;
  };
  // Half split: (1, 3) turns, (2, 4) does not; both are doubled; 5 lies beyond the pairs.
  CHECK(turned(RotaryLayout::half_split, 0) == std::vector<float>{2, 4, 6, 8, 5});
  CHECK(turned(RotaryLayout::half_split, 1) == std::vector<float>{-6, 4, 2, 8, 5});
  CHECK(turned(RotaryLayout::half_split, 2) == std::vector<float>{-2, 4, -6, 8, 5});
  // Interleaved: (1, 2) turns, (3, 4) does not.
  CHECK(turned(RotaryLayout::interleaved, 1) == std::vector<float>{-4, 2, 6, 8, 5});
  CHECK(turned(RotaryLayout::interleaved, 3) == std::vector<float>{4, -2, 6, 8, 5});
  // From the second component on: (2, 3) and (4, 5), or (2, 4) and (3, 5).
  std::vector<float> together{1, 2, 3, 4, 5}, apart = together;
  rotate({quarter, RotaryLayout::interleaved, 2.0, 1}, 1, 5, together);
  rotate({quarter, RotaryLayout::half_split, 2.0, 1}, 1, 5, apart);
  CHECK(largest_difference(together, {1, -6, 4, 8, 10}) < 1e-5);
  CHECK(largest_difference(apart, {1, -8, 6, 4, 10}) < 1e-5);
}

TEST_CASE("rotation follows its definition, and its inverse gives the rows back") {
  const auto layout = GENERATE(RotaryLayout::half_split, RotaryLayout::interleaved);
  const std::size_t pairs = GENERATE(1, 5, 32);
  const std::size_t beyond = GENERATE(0, 3);  // components that do not turn
  const double factor = GENERATE(1.0, 1.3);
  const std::uint64_t first = GENERATE(0, 7, 131000);
  const std::size_t dim = 2 * pairs + beyond, n = 9;
  const std::vector<float> inv_freq = frequencies(pairs);
  const Rotary rotary{inv_freq, layout, factor};
  const std::vector<float> before = random_rows(n, dim, combine({pairs, beyond, first}));

  std::vector<float> rows = before;
  rotate(rotary, first, dim, rows);
  std::vector<float> expected;
  for (std::size_t row = 0; row < n; ++row) {
    const auto begin = before.begin() + static_cast<std::ptrdiff_t>(row * dim);
    const std::vector<float> turned =
        slow_rotation(rotary, first + row, {begin, begin + static_cast<std::ptrdiff_t>(dim)});
    expected.insert(expected.end(), turned.begin(), turned.end());
  }
  CHECK(largest_difference(rows, expected) < 1e-6);
  CHECK(largest_difference(rows, before) > 0.1);

  unrotate(rotary, first, dim, rows);
  CHECK(largest_difference(rows, before) < 1e-6);
}

TEST_CASE("attention of rotated vectors depends on their distance, not on their positions") {
  const std::vector<float> inv_freq = frequencies(16);
  const Rotary rotary{inv_freq};
  const std::vector<float> query = random_rows(1, 32, 1), key = random_rows(1, 32, 2);
  const auto logit = [&](std::uint64_t at_query, std::uint64_t at_key) {
    std::vector<float> q = query, k = key;
    rotate(rotary, at_query, 32, q);
    rotate(rotary, at_key, 32, k);
    double sum = 0;
    for (std::size_t i = 0; i < 32; ++i) sum += static_cast<double>(q[i]) * static_cast<double>(k[i]);
    return sum;
  };
  CHECK(logit(40, 10) == Approx(logit(130, 100)).epsilon(1e-4));
  CHECK(std::abs(logit(40, 10) - logit(40, 11)) > 1e-2);
}

TEST_CASE("no pairs, no rotation; no rows, nothing to do") {
  std::vector<float> row{1, 2, 3};
  rotate({}, 5, 3, row);
  CHECK(row == std::vector<float>{1, 2, 3});
  const std::vector<float> inv_freq{1.0F};
  std::vector<float> none;
  unrotate({inv_freq}, 5, 2, none);
  CHECK(none.empty());
}

TEST_CASE("rows that cannot hold the pairs are refused") {
  const std::vector<float> inv_freq{1.0F, 0.5F};
  std::vector<float> rows(6);
  CHECK_THROWS_AS(rotate({inv_freq}, 0, 3, rows), Error);
  CHECK_THROWS_AS(unrotate({inv_freq}, 0, 4, rows), Error);
  CHECK_THROWS_AS(rotate({}, 0, 0, rows), Error);
}

}  // namespace kvsim::test_rotary
