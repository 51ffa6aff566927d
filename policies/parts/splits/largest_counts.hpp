#pragma once
/// Chooses greedily from several lists at once. Each list falls, so taking the largest remaining value again
/// and again yields the n largest of the union, which is the best split.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// Returns how many of the n largest values of all lists each list holds; of equal values those of earlier
/// lists count first. No list counts more than `most` (its largest); the sum is less than n if the lists hold
/// no more. Throws Error(input) for NaN.
std::vector<std::size_t> counts_of_largest(std::span<const std::vector<double>> lists, std::size_t n,
                                           std::size_t most);

}  // namespace kvsim::policy
