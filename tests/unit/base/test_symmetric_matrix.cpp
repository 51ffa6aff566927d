#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "sim/base/rng.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim {
namespace {

using Numbers = std::vector<double>;

TEST_CASE("a symmetric matrix of two rows by hand") {
  const Numbers matrix{4, 2, 2, 5};
  const Numbers factor = cholesky_factor(matrix, 2, 0);
  CHECK(factor == Numbers{2, 0, 1, 2});
  Numbers right{8, 4, 9, 2};  // two columns
  cholesky_solve(factor, 2, right, 2);
  CHECK(right == Numbers{1.375, 1, 1.25, 0});
  // 3 along (1, 2), 1 along (-2, 1): the negative of the latter has the positive largest number.
  const Eigenvectors found = eigenvectors(Numbers{1.4, 0.8, 0.8, 2.6}, 2);
  const double unit = 1 / std::sqrt(5.0);
  const Numbers vectors{unit, 2 * unit, 2 * unit, -unit};
  CHECK(found.values[0] == Approx(3));
  CHECK(found.values[1] == Approx(1));
  for (std::size_t i = 0; i < 4; ++i) CHECK(found.vectors[i] == Approx(vectors[i]));
}

TEST_CASE(
    "eigenvectors are orthonormal and make the matrix again; of one that rounding left indefinite a factor is finite") {
  constexpr std::size_t kSize = 40;
  Numbers matrix(kSize * kSize);
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      matrix[i * kSize + j] = matrix[j * kSize + i] = uniform01(combine({i, j})) - 0.5;
  const auto [values, vectors] = eigenvectors(matrix, kSize);
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j < kSize; ++j) {
      double made = 0, product = 0;
      for (std::size_t k = 0; k < kSize; ++k) {
        made += values[k] * vectors[k * kSize + i] * vectors[k * kSize + j];
        product += vectors[i * kSize + k] * vectors[j * kSize + k];
      }
      CHECK(made == Approx(matrix[i * kSize + j]).margin(1e-12));
      CHECK(product == Approx(i == j ? 1 : 0).margin(1e-12));
    }
  for (const double x : cholesky_factor(Numbers{1, 1, 1, 1 - 1e-16}, 2, 1e-12)) CHECK(std::isfinite(x));
}

}  // namespace
}  // namespace kvsim
