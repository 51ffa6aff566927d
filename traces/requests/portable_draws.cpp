#include "traces/requests/portable_draws.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/rng.hpp"

namespace kvsim::requests {
namespace {

constexpr double kLn2 = 0.6931471805599453;
constexpr double kPi = 3.141592653589793;

}  // namespace

double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact: x = m 2^exponent
  if (m < 0.7071067811865476) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;  // log m = 2 (s + s^3 / 3 + s^5 / 5 + ...)
  double sum = 0;
  for (int k = 27; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + exponent * kLn2;
}

double portable_exp(double x) {
  x = std::clamp(x, -700.0, 700.0);
  const double halvings = std::floor(x / kLn2 + 0.5);
  const double rest = x - halvings * kLn2;
  double sum = 1;
  for (int k = 20; k >= 1; --k) sum = 1 + rest / k * sum;
  return std::ldexp(sum, static_cast<int>(halvings));
}

double portable_sine(double turns) {
  turns -= std::floor(turns);
  if (turns > 0.75) {
    turns -= 1;
  } else if (turns > 0.25) {
    turns = 0.5 - turns;
  }
  const double x = 2 * kPi * turns, square = x * x;  // |x| <= pi / 2
  double sum = 1;
  for (int k = 24; k >= 2; k -= 2) sum = 1 - square / (k * (k + 1.0)) * sum;
  return x * sum;
}

double exponential_draw(std::uint64_t key) {
  return -portable_log(1.0 - uniform01(key));
}

double normal_draw(std::uint64_t key) {
  for (std::uint64_t i = 0;; ++i) {
    const double u = 2 * uniform01(combine({key, i, 1})) - 1, v = 2 * uniform01(combine({key, i, 2})) - 1;
    const double square = u * u + v * v;
    if (square > 0 && square < 1) return u * std::sqrt(-2 * portable_log(square) / square);
  }
}

double lognormal_draw(std::uint64_t key, double median, double sigma) {
  return median * portable_exp(sigma * normal_draw(key));
}

double gamma_draw(std::uint64_t key, double shape) {
  if (shape < 1) {
    const double u = 1.0 - uniform01(combine({key, 3}));
    return gamma_draw(combine({key, 4}), shape + 1) * portable_exp(portable_log(u) / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (std::uint64_t i = 0;; ++i) {
    const double x = normal_draw(combine({key, i, 5})), t = 1 + c * x;
    if (t <= 0) continue;
    const double v = t * t * t, u = 1.0 - uniform01(combine({key, i, 6}));
    if (portable_log(u) < 0.5 * x * x + d - d * v + d * portable_log(v)) return d * v;
  }
}

std::uint64_t geometric_draw(std::uint64_t key, double mean) {
  if (mean <= 1) return 1;
  const double times = portable_log(1.0 - uniform01(key)) / portable_log(1 - 1 / mean);
  return 1 + static_cast<std::uint64_t>(std::min(times, 1e9));
}

ZipfDraws::ZipfDraws(std::uint64_t n, double exponent) {
  double sum = 0;
  sums_.reserve(n);
  for (std::uint64_t i = 1; i <= n; ++i)
    sums_.push_back(sum += portable_exp(-exponent * portable_log(static_cast<double>(i))));
}

std::uint64_t ZipfDraws::draw(std::uint64_t key) const {
  const auto at = std::upper_bound(sums_.begin(), sums_.end(), uniform01(key) * sums_.back());
  return std::min(static_cast<std::uint64_t>(at - sums_.begin()),
                  static_cast<std::uint64_t>(sums_.size() - 1));
}

}  // namespace kvsim::requests
