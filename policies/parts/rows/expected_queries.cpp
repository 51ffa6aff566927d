#include "policies/parts/rows/expected_queries.hpp"

#include <numeric>

namespace kvsim::policy {
namespace {

/// Turns a pair of components, `stride` apart from vector to vector.
void turn_pair(const Turn& turn, double* a, double* b, std::size_t n, std::size_t stride) {
  for (std::size_t i = 0; i < n * stride; i += stride) turn.apply(a[i], b[i]);
}

}  // namespace

ExpectedQueries::ExpectedQueries(const MatrixView& queries, std::size_t first, std::size_t origin,
                                 const Rotary& rotary, std::size_t future, bool covariance)
    : dim_(queries.cols), mean_(queries.cols) {
  measure(queries, first, origin, rotary, covariance);
  turn(rotary, origin + queries.rows, future);
}

void ExpectedQueries::measure(const MatrixView& queries, std::size_t first, std::size_t origin,
                              const Rotary& rotary, bool covariance) {
  const std::size_t n = queries.rows - first;
  std::vector<float> plain;
  plain.reserve(n * dim_);
  for (std::size_t i = first; i < queries.rows; ++i)
    plain.insert(plain.end(), queries.row(i).begin(), queries.row(i).end());
  unrotate(rotary, origin + first, dim_, plain);

  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t c = 0; c < dim_; ++c) mean_[c] += static_cast<double>(plain[i * dim_ + c]);
  for (double& x : mean_) x /= static_cast<double>(n);
  if (!covariance) return;

  covariance_.resize(dim_ * dim_);
  std::vector<double> centred(dim_);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < dim_; ++c) centred[c] = static_cast<double>(plain[i * dim_ + c]) - mean_[c];
    for (std::size_t a = 0; a < dim_; ++a)
      for (std::size_t b = a; b < dim_; ++b) covariance_[a * dim_ + b] += centred[a] * centred[b];
  }
  for (std::size_t a = 0; a < dim_; ++a)
    for (std::size_t b = a; b < dim_; ++b)
      covariance_[b * dim_ + a] = covariance_[a * dim_ + b] /= static_cast<double>(n);
}

void ExpectedQueries::turn(const Rotary& rotary, std::size_t from, std::size_t future) {
  std::vector<std::size_t> ahead(future);
  std::iota(ahead.begin(), ahead.end(), from);
  const std::vector<Turn> turns = mean_turn(rotary, ahead);
  for (std::size_t pair = 0; pair < turns.size(); ++pair) {
    const auto [a, b] = components(rotary, pair);
    turns[pair].apply(mean_[a], mean_[b]);
    if (covariance_.empty()) continue;
    turn_pair(turns[pair], &covariance_[a * dim_], &covariance_[b * dim_], dim_, 1);  // rows
    turn_pair(turns[pair], &covariance_[a], &covariance_[b], dim_, dim_);             // columns
  }
}

double ExpectedQueries::logit(std::span<const float> key, double scale) const {
  double mean = 0, variance = 0;
  for (std::size_t c = 0; c < dim_; ++c) mean += mean_[c] * static_cast<double>(key[c]);
  // The matrix is symmetric: the diagonal counts once, the entries above it twice.
  for (std::size_t a = 0; !covariance_.empty() && a < dim_; ++a) {
    const double* const row = covariance_.data() + a * dim_;
    double sum = row[a] * static_cast<double>(key[a]) / 2;
    for (std::size_t b = a + 1; b < dim_; ++b) sum += row[b] * static_cast<double>(key[b]);
    variance += 2 * sum * static_cast<double>(key[a]);
  }
  return scale * mean + scale * scale * variance / 2;
}

}  // namespace kvsim::policy
