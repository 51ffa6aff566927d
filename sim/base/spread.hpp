#pragma once
/// What many values are like: percentiles, the mean, and how two lists of them vary together.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace kvsim {

/// The least of `ascending` values, of which there is one at least, that `share` in (0, 1] of them do not
/// exceed.
inline double nearest_rank(std::span<const double> ascending, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(ascending.size())));
  return ascending[std::max<std::size_t>(rank, 1) - 1];
}

/// All are NaN where there are no values. Percentiles are values that occurred.
struct Spread {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

inline Spread spread_of(std::vector<double> values) {
  if (values.empty()) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    return {none, none, none, none, none};
  }
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  return {sum / static_cast<double>(values.size()), nearest_rank(values, 0.5), nearest_rank(values, 0.9),
          nearest_rank(values, 0.99), values.back()};
}

/// How two lists of numbers vary together.
double mean_of(std::span<const double> values);
/// Returns Pearson's correlation of `x` and `y`, which have equal lengths; none when either is constant or
/// both are empty.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);

}  // namespace kvsim
