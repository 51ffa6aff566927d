#include "analysis/statistics/resamples.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/rng.hpp"

namespace kvsim::analysis {
namespace {

/// Quantile at `share` of the way from the least to the greatest.
double quantile(std::span<double> samples, double share) {
  const double place = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(place);
  const double part = place - std::floor(place);
  std::nth_element(samples.begin(), samples.begin() + below, samples.end());
  const double low = samples[static_cast<std::size_t>(below)];
  if (part == 0) return low;
  const double next = *std::min_element(samples.begin() + below + 1, samples.end());
  return low + part * (next - low);
}

}  // namespace

bool Resamples::has_intervals(const TraceSet& set) const {
  bool some = false;
  for (std::size_t begin = 0, end = 0; begin < set.size(); begin = end) {
    std::size_t members = 0;
    for (; end < set.size() && workloads_[end] == workloads_[begin]; ++end) members += set[end] ? 1 : 0;
    if (members == 1) return false;
    some = some || members > 1;
  }
  return some;
}

std::vector<double> Resamples::means(const TraceSet& set, std::span<const double> values) {
  const std::vector<double>& counts = counts_of(set);
  std::vector<double> sums(resamples_, 0.0);
  double members = 0;
  for (std::size_t trace = 0; trace < set.size(); ++trace) {
    if (!set[trace]) continue;
    members += 1;
    for (std::size_t run = trace * runs_; run < (trace + 1) * runs_; ++run) {
      const double value = values[run];
      const double* const drawn = counts.data() + run * resamples_;
      for (std::size_t r = 0; r < resamples_; ++r) sums[r] += drawn[r] * value;
    }
  }
  for (double& sum : sums) sum /= members * static_cast<double>(runs_);
  return sums;
}

const std::vector<double>& Resamples::counts_of(const TraceSet& set) {
  const auto [place, fresh] = counts_.try_emplace(set);
  std::vector<double>& counts = place->second;
  if (!fresh) return counts;
  counts.assign(set.size() * runs_ * resamples_, 0.0);
  for (std::size_t begin = 0, end = 0; begin < set.size(); begin = end) {
    std::vector<std::size_t> members;
    for (; end < set.size() && workloads_[end] == workloads_[begin]; ++end)
      if (set[end]) members.push_back(end);
    const std::uint64_t workload = combine({seed_, key_of("statistics"), key_of(workloads_[begin])});
    for (std::size_t r = 0; r < resamples_; ++r) {
      for (std::size_t k = 0; k < members.size(); ++k) {
        const double draw = uniform01(combine({workload, r, k})) * static_cast<double>(members.size());
        const std::size_t first = members[static_cast<std::size_t>(draw)] * runs_;
        for (std::size_t run = 0; run < runs_; ++run) {
          const double which =
              runs_ == 1 ? 0 : uniform01(combine({workload, r, k, run})) * static_cast<double>(runs_);
          counts[(first + static_cast<std::size_t>(which)) * resamples_ + r] += 1;
        }
      }
    }
  }
  return counts;
}

Interval percentile_interval(std::span<double> samples, double confidence) {
  const double outside = (1 - confidence) / 2;
  return {quantile(samples, outside), quantile(samples, 1 - outside)};
}

}  // namespace kvsim::analysis
