#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "sim/base/dot.hpp"
#include "sim/base/exponentials.hpp"
#include "sim/base/rng.hpp"

using namespace kvsim;

TEST_CASE("rows laid out for products have those of dot, to the bit") {
  for (const std::size_t n : {0U, 1U, 7U, 15U, 16U, 17U, 40U, 64U, 130U})
    for (std::size_t rows = 0; rows < 20; ++rows) {
      const std::size_t stride = n + rows % 3;
      std::vector<float> numbers(rows * stride + 1), a(n);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>(normal(combine({1, n, rows, i})));
      for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<float>(normal(combine({2, n, rows, i})));
      const DotRows panels(numbers.data(), stride, rows, n);
      for (std::size_t asked = 0; asked <= rows; ++asked) {
        std::vector<float> found(rows + 1, 7), expected(rows + 1, 7);
        panels.products(a.data(), asked, found.data());
        for (std::size_t r = 0; r < asked; ++r) expected[r] = dot(a.data(), numbers.data() + r * stride, n);
        CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
      }
    }
}

TEST_CASE("products in double are summed term after term") {
  for (const std::size_t n : {0U, 1U, 40U})
    for (const std::size_t rows : {0U, 1U, 31U, 32U, 33U, 70U}) {
      std::vector<float> columns(n * rows);  // number i of row r at i * rows + r
      std::vector<double> a(n), found(rows + 1, 7), expected(rows + 1, 7);
      for (std::size_t i = 0; i < columns.size(); ++i)
        columns[i] = static_cast<float>(normal(combine({3, n, rows, i})));
      for (std::size_t i = 0; i < n; ++i) a[i] = normal(combine({4, n, rows, i}));
      DotRows(columns.data(), 1, rows, n, rows).products(a.data(), rows, found.data());
      for (std::size_t r = 0; r < rows; ++r) {
        expected[r] = 0;
        for (std::size_t i = 0; i < n; ++i) expected[r] += a[i] * static_cast<double>(columns[i * rows + r]);
      }
      CHECK(found == expected);
    }
}

TEST_CASE("exponentials side by side are those of the library but for the last bit") {
  for (const std::size_t n : {1U, 3U, 4U, 5U, 1000U}) {
    std::vector<double> numbers(n);
    for (std::size_t i = 0; i < n; ++i) numbers[i] = 700 * normal(combine({5, n, i}));
    const std::vector<double> logits = numbers;
    const double largest = *std::ranges::max_element(logits), sum = exponentials(numbers);
    double expected = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double e = logits[i] - largest < -708 ? 0 : std::exp(logits[i] - largest);
      CHECK(numbers[i] == Approx(e).epsilon(5e-16).margin(0));
      expected += e;
    }
    CHECK(sum == Approx(expected).epsilon(1e-15));
  }
  std::vector<double> one = {0, std::numeric_limits<double>::quiet_NaN(),
                             -std::numeric_limits<double>::infinity()};
  CHECK(std::isnan(exponentials(one)));
  CHECK(one[0] == 1);
  CHECK(one[2] == 0);
}
