#include "policies/parts/codes/low_rank.hpp"

#include <algorithm>
#include <cmath>

#include "policies/parts/codes/float_format.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy {
namespace {

void round_to_half(DenseMatrix& matrix) {
  for (float& x : matrix.numbers) x = nearest_half(x);
}

/// Makes the columns orthogonal, of norm 1 or 0.
void orthonormalise(DenseMatrix& a) {
  const auto product = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    for (std::size_t t = 0; t < a.rows; ++t)
      sum += static_cast<double>(a.row(t)[i]) * static_cast<double>(a.row(t)[j]);
    return sum;
  };
  for (std::size_t i = 0; i < a.cols; ++i) {
    const double before = product(i, i);
    // Twice, because what the first pass leaves of a column that nearly depends on others is mostly rounding.
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t j = 0; j < i; ++j) {
        const double share = product(i, j);
        for (std::size_t t = 0; t < a.rows; ++t)
          a.row(t)[i] =
              static_cast<float>(static_cast<double>(a.row(t)[i]) - share * static_cast<double>(a.row(t)[j]));
      }
    const double squares = product(i, i);
    const double scale = squares > 1e-10 * before ? 1 / std::sqrt(squares) : 0;
    for (std::size_t t = 0; t < a.rows; ++t)
      a.row(t)[i] = static_cast<float>(static_cast<double>(a.row(t)[i]) * scale);
  }
}

}  // namespace

void add_low_rank(const DenseMatrix& error, std::size_t rank, std::size_t loops, std::uint64_t key,
                  DenseMatrix& out) {
  if (rank == 0) return;
  DenseMatrix a(error.rows, rank), b(error.cols, rank);
  for (std::size_t i = 0; i < b.numbers.size(); ++i)
    b.numbers[i] = static_cast<float>(normal(combine({key, i})));
  for (std::size_t loop = 0; loop < loops; ++loop) {
    std::ranges::fill(a.numbers, 0.0F);
    for (std::size_t t = 0; t < error.rows; ++t)
      for (std::size_t c = 0; c < error.cols; ++c)
        for (std::size_t r = 0; r < rank; ++r) a.row(t)[r] += error.row(t)[c] * b.row(c)[r];
    orthonormalise(a);
    std::ranges::fill(b.numbers, 0.0F);
    for (std::size_t t = 0; t < error.rows; ++t)
      for (std::size_t c = 0; c < error.cols; ++c)
        for (std::size_t r = 0; r < rank; ++r) b.row(c)[r] += error.row(t)[c] * a.row(t)[r];
  }
  round_to_half(a);
  round_to_half(b);
  for (std::size_t t = 0; t < error.rows; ++t)
    for (std::size_t c = 0; c < error.cols; ++c)
      for (std::size_t r = 0; r < rank; ++r) out.row(t)[c] += a.row(t)[r] * b.row(c)[r];
}

}  // namespace kvsim::policy
