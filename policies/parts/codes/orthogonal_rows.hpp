#pragma once
/// Random directions that are orthogonal to each other.
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace kvsim::policy {

/// Makes the rows [n, dim] orthogonal to each other in blocks of `dim`, each of this squared length
/// (Gram-Schmidt).
inline void make_orthogonal(std::vector<double>& rows, std::size_t dim, double squared_length) {
  for (std::size_t i = 0; i < rows.size() / dim; ++i) {
    double* const row = rows.data() + i * dim;
    for (std::size_t j = i / dim * dim; j < i; ++j) {
      const double* const other = rows.data() + j * dim;
      const double share = std::inner_product(row, row + dim, other, 0.0) / squared_length;
      for (std::size_t c = 0; c < dim; ++c) row[c] -= share * other[c];
    }
    const double length = std::sqrt(std::inner_product(row, row + dim, row, 0.0));
    for (std::size_t c = 0; c < dim; ++c) row[c] *= std::sqrt(squared_length) / length;
  }
}

}  // namespace kvsim::policy
