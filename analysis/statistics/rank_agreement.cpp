#include "analysis/statistics/rank_agreement.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/order.hpp"
#include "sim/base/spread.hpp"

namespace kvsim::analysis {
namespace {

Judgements ranks_of(const Judgements& values) {
  Judgements ranks;
  for (const std::vector<double>& judge : values) ranks.push_back(average_ranks(judge));
  return ranks;
}

/// Sum of t^3 - t over groups of t equal values.
double ties(std::vector<double> ranks) {
  std::ranges::sort(ranks);
  double sum = 0;
  for (auto first = ranks.begin(); first != ranks.end();) {
    const auto last = std::upper_bound(first, ranks.end(), *first);
    const auto t = static_cast<double>(last - first);
    sum += t * t * t - t;
    first = last;
  }
  return sum;
}

}  // namespace

std::vector<double> average_ranks(std::span<const double> values) {
  const std::vector<std::size_t> order = least_first(values);
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0, last; first < order.size(); first = last) {
    for (last = first + 1; last < order.size() && values[order[last]] == values[order[first]];) ++last;
    // Ranks first + 1 ... last.
    for (std::size_t i = first; i < last; ++i) ranks[order[i]] = static_cast<double>(first + 1 + last) / 2;
  }
  return ranks;
}

std::optional<double> concordance(const Judgements& values) {
  if (values.size() < 2 || values[0].size() < 2) return {};
  const auto m = static_cast<double>(values.size()), n = static_cast<double>(values[0].size());
  std::vector<double> sums(values[0].size());
  double tied = 0;
  for (const std::vector<double>& ranks : ranks_of(values)) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += ranks[i];
    tied += ties(ranks);
  }
  const double mean = m * (n + 1) / 2;
  double squares = 0;
  for (const double sum : sums) squares += (sum - mean) * (sum - mean);
  const double most = m * m * n * (n * n - 1) - m * tied;
  if (!(most > 0)) return {};
  return std::min(12 * squares / most, 1.0);
}

std::optional<double> kendall_tau(std::span<const double> a, std::span<const double> b) {
  double balance = 0, apart_in_a = 0, apart_in_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      const int in_a = (a[i] < a[j]) - (a[j] < a[i]), in_b = (b[i] < b[j]) - (b[j] < b[i]);
      balance += in_a * in_b;
      apart_in_a += in_a != 0 ? 1 : 0;
      apart_in_b += in_b != 0 ? 1 : 0;
    }
  }
  if (apart_in_a == 0 || apart_in_b == 0) return {};
  return balance / std::sqrt(apart_in_a * apart_in_b);
}

std::optional<double> mean_rank_correlation(const Judgements& values) {
  const Judgements ranks = ranks_of(values);
  double sum = 0;
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < ranks.size(); ++a)
    for (std::size_t b = a + 1; b < ranks.size(); ++b)
      if (const std::optional<double> r = pearson(ranks[a], ranks[b])) {
        sum += *r;
        ++pairs;
      }
  if (pairs == 0) return {};
  return sum / static_cast<double>(pairs);
}

}  // namespace kvsim::analysis
