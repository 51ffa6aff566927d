#include "policies/parts/rows/leverage.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy {
namespace {

constexpr std::size_t kAtOnce = 4;  ///< rows that are solved for side by side
using Side [[gnu::vector_size(kAtOnce * sizeof(double))]] = double;

/// The lower triangle of X'X + ridge I, [dim, dim].
std::vector<double> moments(std::span<const double> rows, std::size_t dim, double ridge) {
  std::vector<double> out(dim * dim);
  for (std::size_t first = 0; first < rows.size(); first += dim)
    for (std::size_t a = 0; a < dim; ++a)
      for (std::size_t b = 0; b <= a; ++b) out[a * dim + b] += rows[first + a] * rows[first + b];
  for (std::size_t a = 0; a < dim; ++a) out[a * dim + a] += ridge;
  return out;
}

}  // namespace

std::vector<double> leverages(std::span<const double> rows, std::size_t dim, double ridge) {
  const std::vector<double> factor =
      cholesky_factor(moments(rows, dim, ridge), dim, std::numeric_limits<double>::min());
  const std::size_t n = rows.size() / dim;
  std::vector<Side> solved(dim);
  std::vector<double> out(n);
  for (std::size_t first = 0; first < n; first += kAtOnce) {
    const std::size_t there = std::min(kAtOnce, n - first);
    Side squares{};
    for (std::size_t i = 0; i < dim; ++i) {
      Side rest{};
      for (std::size_t r = 0; r < there; ++r) rest[r] = rows[(first + r) * dim + i];
      for (std::size_t k = 0; k < i; ++k) rest -= factor[i * dim + k] * solved[k];
      solved[i] = rest / factor[i * dim + i];
      squares += solved[i] * solved[i];
    }
    for (std::size_t r = 0; r < there; ++r) out[first + r] = squares[r];
  }
  return out;
}

}  // namespace kvsim::policy
