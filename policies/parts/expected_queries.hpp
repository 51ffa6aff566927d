#pragma once
/// What queries that are still to come look like, guessed from those that were (Expected Attention, arXiv
/// 2510.00636, section on the query distribution): a normal distribution before rotation, turned by the
/// average rotation over the positions to come.
#include <cstddef>
#include <span>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy {

class ExpectedQueries {
 public:
  /// From one head's queries of positions [first, queries.rows), as attention used them; `future` positions
  /// from queries.rows on. first < queries.rows, future >= 1.
  ExpectedQueries(const MatrixView& queries, std::size_t first, const Rotary& rotary, std::size_t future,
                  bool covariance);

  /// Expected logarithm of exp(scale * q.key): the mean and, with covariance, half the variance.
  double logit(std::span<const float> key, double scale) const;

  std::span<const double> mean() const { return mean_; }
  /// [dim, dim], divided by the number of queries; empty without.
  std::span<const double> covariance() const { return covariance_; }

 private:
  void measure(const MatrixView& queries, std::size_t first, const Rotary& rotary, bool covariance);
  void turn(const Rotary& rotary, std::size_t from, std::size_t future);

  std::size_t dim_;
  std::vector<double> mean_, covariance_;
};

}  // namespace kvsim::policy
