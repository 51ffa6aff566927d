#include "analysis/results/numbers.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

void require_finite(double value) {
  if (!std::isfinite(value)) bug("a metric is not a finite number");
}

template <class... Format>
std::string to_text(double value, Format... format) {
  std::array<char, 400> text;  // the longest double in fixed notation has 309 digits before the point
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format...);
  if (end.ec != std::errc()) bug("a number does not fit its text");
  return std::string(text.data(), end.ptr);
}

}  // namespace

std::string exact_text(double value) {
  require_finite(value);
  return to_text(value);
}

std::string rounded_text(double value, int decimals) {
  require_finite(value);
  const double size = std::abs(value);
  if (size < 1e15 && std::floor(value) == value) return to_text(value + 0.0, std::chars_format::fixed, 0);
  if (size < 0.5 * std::pow(10.0, -decimals) || size >= 1e15)
    return to_text(value, std::chars_format::scientific, 1);
  return fixed_text(value, decimals);
}

std::string fixed_text(double value, int decimals) {
  require_finite(value);
  return to_text(value, std::chars_format::fixed, decimals);
}

}  // namespace kvsim::analysis
