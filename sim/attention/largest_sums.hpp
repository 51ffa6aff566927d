#pragma once
/// The most that any choice of n values can sum to, which is the oracle of importance retention.
#include <algorithm>
#include <functional>
#include <span>
#include <vector>

namespace kvsim::sim {

/// Returns prefix[n] = sum of the n largest entries, n = 0 .. w.size().
inline std::vector<double> largest_sums(std::span<const double> w) {
  std::vector<double> sorted(w.begin(), w.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<double> prefix(w.size() + 1, 0.0);
  for (std::size_t n = 0; n < sorted.size(); ++n) prefix[n + 1] = prefix[n] + sorted[n];
  return prefix;
}

}  // namespace kvsim::sim
