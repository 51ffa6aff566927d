#include "sim/base/rotary.hpp"

#include <cmath>

#include "sim/base/error.hpp"

namespace kvsim {
namespace {

/// Turns every pair of every row by `direction` times its angle and multiplies it by `factor`.
void turn(const Rotary& rotary, std::uint64_t first_position, std::size_t dim, std::span<float> rows,
          double direction, double factor) {
  const std::size_t pairs = rotary.inv_freq.size();
  if (dim == 0 || dim < rotary.first + 2 * pairs || rows.size() % dim != 0)
    bug("rows do not have the rotation's shape");
  const bool split = rotary.layout == RotaryLayout::half_split;
  const std::size_t step = split ? 1 : 2, partner = split ? pairs : 1;
  for (std::size_t row = 0; row < rows.size() / dim; ++row) {
    const auto position = static_cast<float>(first_position + row);
    for (std::size_t i = 0; i < pairs; ++i) {
      const auto angle = static_cast<double>(position * rotary.inv_freq[i]);
      const double cosine = factor * std::cos(angle), sine = factor * direction * std::sin(angle);
      float& a = rows[row * dim + rotary.first + i * step];
      float& b = rows[row * dim + rotary.first + i * step + partner];
      const double x = static_cast<double>(a), y = static_cast<double>(b);
      a = static_cast<float>(x * cosine - y * sine);
      b = static_cast<float>(y * cosine + x * sine);
    }
  }
}

}  // namespace

void rotate(const Rotary& rotary, std::uint64_t first_position, std::size_t dim, std::span<float> rows) {
  turn(rotary, first_position, dim, rows, 1, rotary.attention_factor);
}

void unrotate(const Rotary& rotary, std::uint64_t first_position, std::size_t dim, std::span<float> rows) {
  turn(rotary, first_position, dim, rows, -1, 1 / rotary.attention_factor);
}

}  // namespace kvsim
