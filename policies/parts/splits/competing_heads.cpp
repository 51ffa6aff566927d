#include "policies/parts/splits/competing_heads.hpp"

#include <numeric>

#include "policies/parts/splits/largest_counts.hpp"
#include "policies/parts/splits/whole_numbers.hpp"

namespace kvsim::policy {

std::vector<std::size_t> best_of_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                       std::size_t most) {
  std::vector<std::size_t> out = counts_of_largest(gains, total, most);
  spread(out, total - std::accumulate(out.begin(), out.end(), std::size_t{0}), most);
  return out;
}

std::vector<std::size_t> competing_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                         std::size_t most, double alpha) {
  const double even = alpha * static_cast<double>(total) / static_cast<double>(gains.size());
  std::vector<double> ideal;
  for (const std::size_t n : best_of_heads(gains, total, most))
    ideal.push_back(static_cast<double>(n) * (1 - alpha) + even);
  return largest_remainder(ideal, total);
}

}  // namespace kvsim::policy
