#include "sim/base/dot.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace kvsim {
namespace {

/// Sums side by side, which the compiler turns into vector instructions.
constexpr std::size_t kSums = 16;
/// Rows side by side.
constexpr std::size_t kLanes = 8;
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

Lanes lanes_at(const float* numbers) {
  Lanes out;
  std::memcpy(&out, numbers, sizeof out);
  return out;
}

using Doubles [[gnu::vector_size(kLanes / 2 * sizeof(double))]] = double;
Doubles doubles_at(const float* numbers) {
  return Doubles{numbers[0], numbers[1], numbers[2], numbers[3]};
}

}  // namespace

float dot(const float* a, const float* b, std::size_t n) {
  std::array<float, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (std::size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  float sum = 0;
  for (const float s : sums) sum += s;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

DotRows::DotRows(const float* numbers, std::size_t stride, std::size_t rows, std::size_t n, std::size_t step)
    : n_(n), panels_((rows + kLanes - 1) / kLanes * kLanes * n) {
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < n; ++i)
      panels_[(r / kLanes * n + i) * kLanes + r % kLanes] = numbers[r * stride + i * step];
}

void DotRows::products(const float* a, std::size_t rows, float* out) const {
  const std::size_t whole = n_ / kSums * kSums;
  for (std::size_t first = 0; first < rows; first += kLanes) {
    const float* const panel = panels_.data() + first * n_;
    Lanes total{};
    // Eight of the sixteen sums at a time stay in registers.
    for (std::size_t half = 0; half < kSums; half += 8) {
      Lanes s0{}, s1{}, s2{}, s3{}, s4{}, s5{}, s6{}, s7{};
      for (std::size_t i = half; i < whole; i += kSums) {
        const float *x = a + i, *y = panel + i * kLanes;
        s0 += x[0] * lanes_at(y);
        s1 += x[1] * lanes_at(y + kLanes);
        s2 += x[2] * lanes_at(y + 2 * kLanes);
        s3 += x[3] * lanes_at(y + 3 * kLanes);
        s4 += x[4] * lanes_at(y + 4 * kLanes);
        s5 += x[5] * lanes_at(y + 5 * kLanes);
        s6 += x[6] * lanes_at(y + 6 * kLanes);
        s7 += x[7] * lanes_at(y + 7 * kLanes);
      }
      for (const Lanes& sum : {s0, s1, s2, s3, s4, s5, s6, s7}) total += sum;
    }
    for (std::size_t i = whole; i < n_; ++i) total += a[i] * lanes_at(panel + i * kLanes);
    std::memcpy(out + first, &total, std::min(kLanes, rows - first) * sizeof(float));
  }
}

template <class Number>
void DotRows::products(const Number* a, std::size_t rows, double* out) const {
  constexpr std::size_t kPanels = 4, kRows = kPanels * kLanes;  // that pass together
  for (std::size_t first = 0; first < rows; first += kRows) {
    const float* panels[kPanels];
    for (std::size_t p = 0; p < kPanels; ++p)
      panels[p] = panels_.data() + std::min(first + p * kLanes, (rows - 1) / kLanes * kLanes) * n_;
    Doubles sums[kPanels][2]{};
    for (std::size_t i = 0; i < n_; ++i) {
      const auto x = static_cast<double>(a[i]);
#pragma GCC unroll 4
      for (std::size_t p = 0; p < kPanels; ++p) {
        const float* const y = panels[p] + i * kLanes;
        sums[p][0] += x * doubles_at(y);
        sums[p][1] += x * doubles_at(y + kLanes / 2);
      }
    }
    std::memcpy(out + first, sums, std::min(kRows, rows - first) * sizeof(double));
  }
}
template void DotRows::products(const float*, std::size_t, double*) const;
template void DotRows::products(const double*, std::size_t, double*) const;

}  // namespace kvsim
