#include "policies/parts/rows/norms.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace kvsim::policy {
namespace {

// A tile of the result that fits the first-level cache while the rows of weights stream through.
constexpr std::size_t kRows = 8, kColumns = 256;

}  // namespace

std::vector<double> projected_norms(const MatrixView& values, const MatrixView& weights, Norm norm) {
  std::vector<double> out(values.rows);
  std::array<float, kRows * kColumns> tile;
  for (std::size_t first = 0; first < values.rows; first += kRows) {
    const std::size_t rows = std::min(kRows, values.rows - first);
    for (std::size_t left = 0; left < weights.cols; left += kColumns) {
      const std::size_t columns = std::min(kColumns, weights.cols - left);
      tile.fill(0);
      for (std::size_t c = 0; c < weights.rows; ++c) {
        const float* const weight = weights.row(c).data() + left;
        for (std::size_t i = 0; i < rows; ++i) {
          const float value = values(first + i, c);
          for (std::size_t h = 0; h < columns; ++h) tile[i * kColumns + h] += value * weight[h];
        }
      }
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t h = 0; h < columns; ++h) {
          const double x = tile[i * kColumns + h];
          out[first + i] += norm == Norm::l1 ? std::abs(x) : x * x;
        }
    }
  }
  if (norm == Norm::euclidean)
    for (double& x : out) x = std::sqrt(x);
  return out;
}

}  // namespace kvsim::policy
