#pragma once
/// Logits in double, for policies that compute attention of their own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace kvsim::policy {

/// Sum of a[i] b[i], term after term.
inline double product_of(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  return sum;
}

/// In place, of at least one logit; that of a sink takes part.
inline void softmax(std::span<double> logits, double sink = -std::numeric_limits<double>::infinity()) {
  const double largest = std::max(*std::max_element(logits.begin(), logits.end()), sink);
  double sum = std::exp(sink - largest);
  for (double& x : logits) sum += x = std::exp(x - largest);
  for (double& x : logits) x /= sum;
}

}  // namespace kvsim::policy
