#include "sim/base/spread.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvsim {
namespace {

bool constant(std::span<const double> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

}  // namespace

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> pearson(std::span<const double> x, std::span<const double> y) {
  if (constant(x) || constant(y)) return {};
  const double mean_x = mean_of(x), mean_y = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  }
  // The squares of subnormal deviations may be 0; the correlation is undefined then too.
  if (!(xx * yy > 0)) return {};
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

}  // namespace kvsim
