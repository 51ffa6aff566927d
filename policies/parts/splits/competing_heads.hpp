#pragma once
/// Lets the heads of a layer compete for its budget (Ada-KV, arXiv 2407.11550, Algorithm 1).
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "policies/parts/splits/largest_counts.hpp"
#include "policies/parts/splits/whole_numbers.hpp"

namespace kvsim::policy {

/// `gains`: what each further token is worth to each head, falling. Returns how many of the `total` best each
/// head holds, none more than `most`; where the heads have fewer, the rest goes to them in turn.
inline std::vector<std::size_t> best_of_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                              std::size_t most) {
  std::vector<std::size_t> out = counts_of_largest(gains, total, most);
  spread(out, total - std::accumulate(out.begin(), out.end(), std::size_t{0}), most);
  return out;
}
/// The same mixed with an equal share of `total`, of which a part `alpha` counts, to whole numbers by largest
/// remainder.
inline std::vector<std::size_t> competing_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                                std::size_t most, double alpha) {
  const double even = alpha * static_cast<double>(total) / static_cast<double>(gains.size());
  std::vector<double> ideal;
  for (const std::size_t n : best_of_heads(gains, total, most))
    ideal.push_back(static_cast<double>(n) * (1 - alpha) + even);
  return largest_remainder(ideal, total);
}

}  // namespace kvsim::policy
