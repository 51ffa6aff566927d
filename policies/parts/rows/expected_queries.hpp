#pragma once
/// Predicts the distribution of future queries from past ones (Expected Attention, arXiv 2510.00636, section
/// on the query distribution): a normal distribution before rotation, turned by the average rotation over the
/// future positions.
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
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

// How a rotation turns on average over positions to come: what is expected of a query that is not there yet.

/// Multiplies a pair of components by the matrix c -s / s c.
struct Turn {
  double c = 1, s = 0;

  void apply(double& a, double& b) const {
    const double x = a, y = b;
    a = c * x - s * y;
    b = c * y + s * x;
  }
};

/// The two components of a pair.
inline std::pair<std::size_t, std::size_t> components(const Rotary& rotary, std::size_t pair) {
  const bool split = rotary.layout == RotaryLayout::half_split;
  const std::size_t a = rotary.first + (split ? pair : 2 * pair);
  return {a, a + (split ? rotary.inv_freq.size() : 1)};
}

/// Returns the mean turn of each pair over `positions`, of which there is at least one, times
/// attention_factor.
inline std::vector<Turn> mean_turn(const Rotary& rotary, std::span<const std::size_t> positions) {
  std::vector<Turn> out;
  for (const float frequency : rotary.inv_freq) {
    Turn sum{0, 0};
    for (const std::size_t position : positions) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      sum.c += std::cos(angle);
      sum.s += std::sin(angle);
    }
    sum.c *= rotary.attention_factor / static_cast<double>(positions.size());
    sum.s *= rotary.attention_factor / static_cast<double>(positions.size());
    out.push_back(sum);
  }
  return out;
}

}  // namespace kvsim::policy
