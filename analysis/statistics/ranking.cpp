#include "analysis/statistics/ranking.hpp"

#include <algorithm>
#include <numeric>

namespace kvsim::analysis {
namespace {

/// Sum of t^3 - t over groups of t equal ranks.
double ties_in(std::vector<double> ranks) {
  std::sort(ranks.begin(), ranks.end());
  double sum = 0;
  for (auto begin = ranks.begin(); begin != ranks.end();) {
    const auto end = std::upper_bound(begin, ranks.end(), *begin);
    const auto t = static_cast<double>(end - begin);
    sum += t * t * t - t;
    begin = end;
  }
  return sum;
}

}  // namespace

std::vector<double> mean_ranks(std::span<const double> values, const Metric& metric) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return metric.prefers(values[a], values[b]); });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double shared = static_cast<double>(begin + 1 + end) / 2;  // mean of begin + 1, ..., end
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = shared;
  }
  return ranks;
}

std::optional<double> concordance(const std::vector<std::vector<double>>& rankings) {
  if (rankings.size() < 2 || rankings.front().size() < 2) return {};
  const auto m = static_cast<double>(rankings.size());
  const auto n = static_cast<double>(rankings.front().size());
  double ties = 0, spread = 0;
  for (const std::vector<double>& ranks : rankings) ties += ties_in(ranks);
  for (std::size_t policy = 0; policy < rankings.front().size(); ++policy) {
    double sum = 0;
    for (const std::vector<double>& ranks : rankings) sum += ranks[policy];
    const double from_mean = sum - m * (n + 1) / 2;
    spread += from_mean * from_mean;
  }
  const double most = m * m * (n * n * n - n) - m * ties;
  if (most <= 0) return {};
  return 12 * spread / most;
}

}  // namespace kvsim::analysis
