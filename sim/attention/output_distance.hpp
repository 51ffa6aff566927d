#pragma once
/// How far one vector is from another: relative error and cosine.
#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kvsim::sim {

inline double cosine_of(double shared, double of_one, double of_other) {
  if (of_one > 0 && of_other > 0) return shared / std::sqrt(of_one * of_other);
  return of_one > 0 || of_other > 0 ? 0 : 1;
}

struct OutputDistance {
  double error = 0;   ///< |difference| / |whole|; if |whole| is 0: 0 if the difference is 0, else 1
  double cosine = 1;  ///< between whole + difference and whole; if either is 0: 1 if both are, else 0
  // Products of vectors: of the difference and of whole + difference with themselves, of the latter with
  // whole.
  double of_difference = 0, of_other = 0, shared = 0;

  /// Where whole = m evicted + (1 - m) other, with other = whole + difference and m > 0: the cosine of
  /// evicted, which is other - difference / m, to other.
  double evicted_cosine(double m) const {
    const double along = (of_other - shared) / m;  // (difference / m) * other
    const double of_evicted = of_other - 2 * along + of_difference / (m * m);
    return std::clamp(cosine_of(of_other - along, of_evicted, of_other), -1.0, 1.0);
  }
};

inline OutputDistance output_distance(const float* whole, const float* difference, std::size_t n) {
  OutputDistance out;
  double of_whole = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double o = whole[i], d = difference[i], other = o + d;
    out.of_difference += d * d;
    of_whole += o * o;
    out.of_other += other * other;
    out.shared += other * o;
  }
  if (of_whole > 0)
    out.error = std::sqrt(out.of_difference / of_whole);
  else
    out.error = out.of_difference > 0 ? 1 : 0;
  out.cosine = cosine_of(out.shared, of_whole, out.of_other);
  return out;
}

}  // namespace kvsim::sim
