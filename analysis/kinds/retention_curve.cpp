#include "analysis/kinds/retention_curve.hpp"

#include <algorithm>
#include <cmath>

#include "sim/attention/step_oracle.hpp"

namespace kvsim::analysis {

RetentionCurve::RetentionCurve(std::span<const double> w) : sums_(sim::largest_sums(w)) {}

std::optional<double> RetentionCurve::retained(std::size_t n) const {
  if (!(sums_.back() > 0)) return {};
  return sums_[n] / sums_.back();
}

std::optional<double> RetentionCurve::per_bit(std::size_t n) const {
  const std::optional<double> r = retained(n);
  if (n <= 1 || !r) return {};
  return *r / std::log2(static_cast<double>(n));
}

std::optional<double> RetentionCurve::slope(std::size_t n) const {
  if (n <= 2 || !retained(n)) return {};
  return *per_bit(n) - *per_bit(n - 1);
}

std::optional<std::size_t> RetentionCurve::size_for(double share) const {
  if (!(sums_.back() > 0)) return {};
  constexpr double kRounding = 1e-12;
  const auto found = std::ranges::lower_bound(sums_, (share - kRounding) * sums_.back());
  return static_cast<std::size_t>(found - sums_.begin());
}

std::optional<std::size_t> RetentionCurve::last_slope(double least) const {
  for (std::size_t n = size(); n > 2; --n)
    if (const std::optional<double> f = slope(n); f && *f >= least) return n;
  return {};
}

}  // namespace kvsim::analysis
