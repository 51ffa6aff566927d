#include "sim/base/symmetric_matrix.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace kvsim {

std::vector<double> cholesky_factor(std::span<const double> matrix, std::size_t n, double least) {
  std::vector<double> out(n * n), columns(n * n);  // its rows, and its columns, which are read below
  for (std::size_t i = 0; i < n; ++i) {
    double* const row = out.data() + i * n;
    std::copy_n(matrix.data() + i * n, i + 1, row);
    for (std::size_t k = 0; k < i; ++k) {
      const double* const column = columns.data() + k * n;
      row[k] /= column[k];
      for (std::size_t j = k + 1; j < i; ++j) row[j] -= row[k] * column[j];
      row[i] -= row[k] * row[k];
      columns[k * n + i] = row[k];
    }
    columns[i * n + i] = row[i] = std::sqrt(std::max(row[i], least));
  }
  return out;
}

void cholesky_solve(std::span<const double> factor, std::size_t n, std::span<double> right,
                    std::size_t width) {
  const auto subtract = [&](std::size_t to, std::size_t from, double times) {
    for (std::size_t c = 0; c < width; ++c) right[to * width + c] -= times * right[from * width + c];
  };
  const auto divide = [&](std::size_t row) {
    for (std::size_t c = 0; c < width; ++c) right[row * width + c] /= factor[row * n + row];
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) subtract(i, k, factor[i * n + k]);
    divide(i);
  }
  for (std::size_t i = n; i-- > 0;) {
    divide(i);
    for (std::size_t k = 0; k < i; ++k) subtract(k, i, factor[i * n + k]);
  }
}

Eigenvectors eigenvectors(std::span<const double> matrix, std::size_t n) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto size = static_cast<Eigen::Index>(n);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(Eigen::Map<const Matrix>(matrix.data(), size, size));
  if (solver.info() != Eigen::Success) bug("the eigenvectors of a symmetric matrix were not found");
  Eigenvectors out;
  for (Eigen::Index i = size; i-- > 0;) {
    out.values.push_back(solver.eigenvalues()[i]);
    const auto vector = solver.eigenvectors().col(i);
    Eigen::Index largest = 0;
    vector.cwiseAbs().maxCoeff(&largest);
    const double sign = vector[largest] < 0 ? -1 : 1;
    for (Eigen::Index c = 0; c < size; ++c) out.vectors.push_back(sign * vector[c]);
  }
  return out;
}

}  // namespace kvsim
