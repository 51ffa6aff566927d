#pragma once
/// Greedy choice from several lists at once. Taking the best of all again and again ends with the n largest
/// of the union, because each list gives its values in falling order: the best split there is.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// How many of the n largest values of all lists each list holds; of equal values those of earlier lists
/// count first. No list counts more than `most` (its largest); less than n in all if that is all there is.
/// Values are not NaN, else Error(input).
std::vector<std::size_t> counts_of_largest(std::span<const std::vector<double>> lists, std::size_t n,
                                           std::size_t most);

}  // namespace kvsim::policy
