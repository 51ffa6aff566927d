#include "policies/parts/rows/pooling.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace kvsim::policy {
namespace {

/// Calls combine(out[i], values[i + offset]) for every offset of the kernel that stays inside.
template <class Combine>
void slide(std::size_t kernel, std::span<const double> values, std::span<double> out, Combine combine) {
  const std::size_t n = values.size(), reach = kernel / 2;
  for (std::size_t back = std::min(reach, n); back > 0; --back)
    for (std::size_t i = back; i < n; ++i) out[i] = combine(out[i], values[i - back]);
  for (std::size_t ahead = 0; ahead <= reach && ahead < n; ++ahead)
    for (std::size_t i = 0; i + ahead < n; ++i) out[i] = combine(out[i], values[i + ahead]);
}

}  // namespace

Pooling Pooling::parse(std::string_view text) {
  Pooling out;
  if (text == "none") return out;
  out.kind = text.starts_with("avg") ? Kind::average : Kind::maximum;
  std::from_chars(text.data() + 4, text.data() + text.size(), out.kernel);
  out.padded = !text.ends_with(":nopad");
  return out;
}

std::vector<double> pooled(const Pooling& pooling, std::span<const double> values) {
  if (pooling.kind == Pooling::Kind::none) return {values.begin(), values.end()};
  if (pooling.kind == Pooling::Kind::maximum) {
    std::vector<double> out(values.size(), -std::numeric_limits<double>::infinity());
    slide(pooling.kernel, values, out, [](double a, double b) { return a < b ? b : a; });
    return out;
  }
  std::vector<double> out(values.size());
  slide(pooling.kernel, values, out, [](double a, double b) { return a + b; });
  const std::size_t n = out.size(), reach = pooling.kernel / 2;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t inside = std::min(i, reach) + 1 + std::min(n - 1 - i, reach);
    out[i] /= static_cast<double>(pooling.padded ? pooling.kernel : inside);
  }
  return out;
}

}  // namespace kvsim::policy
