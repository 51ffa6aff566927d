#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "sim/base/dot.hpp"
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
