#pragma once
/// The most that any choice of n values can sum to, which is the oracle of importance retention.
#include <span>
#include <vector>

namespace kvsim::sim {

/// Returns prefix[n] = sum of the n largest entries, n = 0 .. w.size().
std::vector<double> largest_sums(std::span<const double> w);

}  // namespace kvsim::sim
