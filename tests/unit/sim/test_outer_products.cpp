// Tests sums of outer products: the same bits on every path of the processor.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "sim/attention/outer_products.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::test_outer_products {

TEST_CASE("sums of outer products by hand, in order") {
  // (1, 2) (3, 4)^T + (10, 20) (1, -1)^T; then 2^24 + 1 + 1, where each 1 is lost.
  const float a0[] = {1, 2}, a1[] = {10, 20}, b0[] = {3, 4}, b1[] = {1, -1};
  const float* const a[] = {a0, a1};
  const float* const b[] = {b0, b1};
  float out[4];
  sim::sum_outer_products(a, 2, b, 2, out);
  CHECK(std::vector<float>(out, out + 4) == std::vector<float>{13, -6, 26, -12});
  const float large[] = {0x1p24F}, one[] = {1};
  const float* const x[] = {large, one, one};
  const float* const y[] = {one, one, one};
  sim::sum_outer_products(x, 1, y, 1, out);
  CHECK(out[0] == 0x1p24F);
  sim::sum_outer_products({}, 2, {}, 2, out);
  CHECK(std::vector<float>(out, out + 4) == std::vector<float>(4, 0.0F));
}

TEST_CASE("every path sums in the stated order") {
  for (const std::size_t n : {1, 127, 300})
    for (const std::size_t rows : {1, 6, 128})
      for (const std::size_t cols : {1, 16, 37, 64, 128}) {
        std::vector<std::vector<float>> vectors;
        std::vector<const float*> a, b;
        for (std::size_t i = 0; i < 2 * n; ++i) {
          std::vector<float>& vector = vectors.emplace_back(i % 2 == 0 ? rows : cols);
          for (std::size_t j = 0; j < vector.size(); ++j)
            vector[j] = static_cast<float>(normal(combine({i, j})));
        }
        for (std::size_t i = 0; i < 2 * n; ++i) (i % 2 == 0 ? a : b).push_back(vectors[i].data());
        std::vector<float> expected(rows * cols);
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < cols; ++c)
              expected[r * cols + c] = std::fma(a[i][r], b[i][c], expected[r * cols + c]);
        for (const sim::ProductPath path : {sim::ProductPath::wide, sim::ProductPath::plain}) {
          if (!sim::path_available(path)) continue;
          std::vector<float> out(rows * cols, 5.0F);
          sim::sum_outer_products(a, rows, b, cols, out.data(), path);
          CHECK(out == expected);
        }
      }
}

}  // namespace kvsim::test_outer_products
