#pragma once
/// Predicts the distribution of future queries from past ones (Expected Attention, arXiv 2510.00636, section
/// on the query distribution): a normal distribution before rotation, turned by the average rotation over the
/// future positions.
#include <cstddef>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy {

class ExpectedQueries {
 public:
  /// Fits one head's queries, rows from `first` on, as attention used them, for the `future` positions behind
  /// the last. Row r stands at `origin` + r. first < queries.rows, future >= 1.
  ExpectedQueries(const MatrixView& queries, std::size_t first, std::size_t origin, const Rotary& rotary,
                  std::size_t future, bool covariance);

  /// Returns the expected logarithm of exp(scale * q.key): the mean and, with covariance, half the variance.
  double logit(std::span<const float> key, double scale) const;

  std::span<const double> mean() const { return mean_; }
  /// [dim, dim], divided by the number of queries; empty if constructed without covariance.
  std::span<const double> covariance() const { return covariance_; }

 private:
  void measure(const MatrixView& queries, std::size_t first, std::size_t origin, const Rotary& rotary,
               bool covariance);
  void turn(const Rotary& rotary, std::size_t from, std::size_t future);

  std::size_t dim_;
  std::vector<double> mean_, covariance_;
};

}  // namespace kvsim::policy
