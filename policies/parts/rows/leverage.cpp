#include "policies/parts/rows/leverage.hpp"

#include <limits>

#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy {
namespace {

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
  std::vector<double> solved(dim), out;
  for (std::size_t first = 0; first < rows.size(); first += dim) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      double rest = rows[first + i];
      for (std::size_t k = 0; k < i; ++k) rest -= factor[i * dim + k] * solved[k];
      solved[i] = rest / factor[i * dim + i];
      squares += solved[i] * solved[i];
    }
    out.push_back(squares);
  }
  return out;
}

}  // namespace kvsim::policy
