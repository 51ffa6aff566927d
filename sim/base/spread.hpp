#pragma once
/// What many values are like, in five numbers.
#include <algorithm>
#include <limits>
#include <vector>

#include "sim/base/nearest_rank.hpp"

namespace kvsim {

/// All are NaN where there are no values. Percentiles are values that occurred (nearest_rank.hpp).
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

}  // namespace kvsim
