#include "policies/parts/nearest_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "policies/parts/euclidean_norm.hpp"

namespace kvsim::policy {
namespace {

/// Sixteen sums side by side, which the compiler turns into vector instructions.
constexpr std::size_t kLanes = 16;

float dot(const float* a, const float* b, std::size_t n) {
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::size_t j = 0; j < kLanes; ++j) sums[j] += a[i + j] * b[i + j];
  for (std::size_t j = 0; i + j < n; ++j) sums[j] += a[i + j] * b[i + j];
  return std::accumulate(sums.begin(), sums.end(), 0.0F);
}

}  // namespace

UnitRows::UnitRows(MatrixView keys, std::span<const std::size_t> rows) : dim_(keys.cols) {
  numbers_.reserve(rows.size() * dim_);
  for (const std::size_t row : rows) {
    const double norm = euclidean_norm(keys.row(row));
    for (const float x : keys.row(row))
      numbers_.push_back(norm > 0 ? static_cast<float>(static_cast<double>(x) / norm) : 0);
  }
}

double UnitRows::cosine(std::size_t row, const UnitRows& other, std::size_t other_row) const {
  const float product = dot(numbers_.data() + row * dim_, other.numbers_.data() + other_row * dim_, dim_);
  return std::clamp(static_cast<double>(product), -1.0, 1.0);
}

std::vector<Nearest> nearest_by_cosine(const UnitRows& leaving, const UnitRows& staying) {
  std::vector<Nearest> out(leaving.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = {0, leaving.cosine(i, staying, 0)};
    for (std::size_t j = 1; j < staying.size(); ++j)
      if (const double cosine = leaving.cosine(i, staying, j); cosine > out[i].cosine) out[i] = {j, cosine};
  }
  return out;
}

std::vector<std::size_t> nearest_by_position(std::span<const Position> leaving,
                                             std::span<const Position> staying) {
  std::vector<std::size_t> order(staying.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return staying[a] < staying[b]; });
  std::vector<std::size_t> out;
  for (const Position position : leaving) {
    const auto after = std::lower_bound(order.begin(), order.end(), position,
                                        [&](std::size_t i, Position p) { return staying[i] < p; });
    const bool first = after == order.begin(), last = after == order.end();
    const bool later = first || (!last && staying[*after] - position < position - staying[*(after - 1)]);
    out.push_back(later ? *after : *(after - 1));
  }
  return out;
}

}  // namespace kvsim::policy
