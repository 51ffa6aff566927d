#pragma once
/// Non-uniform codes: a number is stored as the nearest of a few levels, which are the centres of clusters of
/// the numbers that were seen before.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// The index of the level nearest to x, of two the lower; the first for NaN. `levels` ascend.
std::size_t nearest_level(std::span<const float> levels, float x);

/// Lloyd's k-means of single numbers (Euclidean, unweighted): at most `rounds` rounds from centres at even
/// quantiles. Centres ascend and are rounded to 16-bit floats at the end; those that no number is nearest to
/// stay where they were. `numbers` are finite and at least one.
std::vector<float> level_means(std::vector<float> numbers, std::size_t levels, std::size_t rounds);

}  // namespace kvsim::policy
