#pragma once
/// The per-step oracle: the most attention that any method can retain with n keys. It chooses the n keys anew
/// at every step among all keys so far, and loses none for good, so it bounds every method that reads n keys.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace kvsim::sim {

/// The n largest entries of a row.
struct LargestEntries {
  double share = 1;      ///< of the row's mass
  double squares = 0;    ///< sum of their squares
  float least = 0;       ///< the smallest of them
  std::size_t ties = 0;  ///< how many of them equal it
};

/// Computes the largest entries for each n of `counts` (ascending, each <= row.size()). Reorders `row`. `out`
/// has the size of `counts`.
void largest_entries(std::span<float> row, std::span<const std::size_t> counts,
                     std::span<LargestEntries> out);

// The most that any choice of n values can sum to, which is the oracle of importance retention.

/// Returns prefix[n] = sum of the n largest entries, n = 0 .. w.size().
inline std::vector<double> largest_sums(std::span<const double> w) {
  std::vector<double> sorted(w.begin(), w.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::vector<double> prefix(w.size() + 1, 0.0);
  for (std::size_t n = 0; n < sorted.size(); ++n) prefix[n + 1] = prefix[n] + sorted[n];
  return prefix;
}

}  // namespace kvsim::sim
