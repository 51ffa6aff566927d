#include "sim/base/dot.hpp"

#include <array>

namespace kvsim {

float dot(const float* a, const float* b, std::size_t n) {
  // Sixteen sums side by side, which the compiler turns into vector instructions.
  constexpr std::size_t kSums = 16;
  std::array<float, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (std::size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  float sum = 0;
  for (const float s : sums) sum += s;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace kvsim
