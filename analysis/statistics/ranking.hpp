#pragma once
/// Ranks of policies, and how far traces agree on them.
#include <optional>
#include <span>
#include <vector>

#include "analysis/metric.hpp"

namespace kvsim::analysis {

/// Rank 1 is best; equal values share the mean of their places.
std::vector<double> mean_ranks(std::span<const double> values, const Metric& metric);

/// Kendall's W of several rankings of the same policies, corrected for ties (Kendall and Babington Smith
/// 1939): 1 when all agree, about 0 when they have nothing in common. Nothing with fewer than two rankings or
/// two policies, or when every ranking ties all.
std::optional<double> concordance(const std::vector<std::vector<double>>& rankings);

}  // namespace kvsim::analysis
