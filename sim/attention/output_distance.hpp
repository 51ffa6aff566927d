#pragma once
/// How far one vector is from another: relative error and cosine.
#include <cmath>
#include <cstddef>

namespace kvsim::sim {

struct OutputDistance {
  double error = 0;   ///< |difference| / |whole|; if |whole| is 0: 0 if the difference is 0, else 1
  double cosine = 1;  ///< between whole + difference and whole; if either is 0: 1 if both are, else 0
};

inline OutputDistance output_distance(const float* whole, const float* difference, std::size_t n) {
  double of_difference = 0, of_whole = 0, of_other = 0, shared = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double o = whole[i], d = difference[i], other = o + d;
    of_difference += d * d;
    of_whole += o * o;
    of_other += other * other;
    shared += other * o;
  }
  OutputDistance out;
  if (of_whole > 0)
    out.error = std::sqrt(of_difference / of_whole);
  else
    out.error = of_difference > 0 ? 1 : 0;
  if (of_whole > 0 && of_other > 0)
    out.cosine = shared / std::sqrt(of_whole * of_other);
  else
    out.cosine = of_whole > 0 || of_other > 0 ? 0 : 1;
  return out;
}

}  // namespace kvsim::sim
