// 16-bit floats: every bit pattern against a decode by definition, and rounding against a search.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "sim/base/half.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::test_half {

namespace {

struct Format {
  Elem elem;
  int exponent_bits, mantissa_bits;
};
constexpr Format kF16{Elem::f16, 5, 10}, kBf16{Elem::bf16, 8, 7};

/// IEEE 754, word by word: sign, exponent, mantissa.
double decode(const Format& format, std::uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign * std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
}

float widened(const Format& format, std::uint16_t bits) {
  return format.elem == Elem::f16 ? widen_f16(bits) : widen_bf16(bits);
}
std::uint16_t narrowed(const Format& format, float value) {
  return format.elem == Elem::f16 ? narrow_f16(value) : narrow_bf16(value);
}

/// Nearest representable value, ties to the even mantissa, found among all finite ones. Values at or beyond
/// half a step above the largest are infinite.
class Rounder {
 public:
  explicit Rounder(const Format& format) {
    for (unsigned bits = 0; bits < 0x8000; ++bits) {
      const double value = decode(format, static_cast<std::uint16_t>(bits));
      if (std::isfinite(value)) values_.push_back(value);
    }
  }
  std::uint16_t operator()(float value) const {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double size = std::abs(static_cast<double>(value));
    const auto infinity = static_cast<std::uint16_t>(sign | values_.size());
    const double last_step = values_.back() - values_[values_.size() - 2];
    if (size >= values_.back() + last_step / 2) return infinity;
    const auto above = std::upper_bound(values_.begin(), values_.end(), size);
    auto index = static_cast<std::size_t>(above - values_.begin()) - 1;
    if (index + 1 < values_.size()) {
      const double down = size - values_[index], up = values_[index + 1] - size;
      if (up < down || (up == down && index % 2 == 1)) ++index;
    }
    return static_cast<std::uint16_t>(sign | index);
  }

 private:
  std::vector<double> values_;  // index = bit pattern of the non-negative number
};

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

TEST_CASE("all 65536 words widen to what they mean, and narrow back to themselves") {
  for (const Format& format : {kF16, kBf16}) {
    std::size_t nans = 0, wrong = 0;
    for (unsigned word = 0; word < 0x10000; ++word) {
      const auto bits = static_cast<std::uint16_t>(word);
      const double meant = decode(format, bits);
      const float wide = widened(format, bits);
      if (std::isnan(meant)) {
        ++nans;
        wrong += std::isnan(wide) && std::isnan(widened(format, narrowed(format, wide))) ? 0 : 1;
      } else {
        wrong += same_bits(wide, static_cast<float>(meant)) && narrowed(format, wide) == bits ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
    CHECK(nans == 2 * ((std::size_t{1} << format.mantissa_bits) - 1));
  }
}

TEST_CASE("narrowing rounds to nearest even, at every border between neighbours") {
  for (const Format& format : {kF16, kBf16}) {
    const Rounder expected(format);
    std::size_t wrong = 0;
    for (unsigned word = 0; word < 0x7fff; ++word) {
      const double low = decode(format, static_cast<std::uint16_t>(word));
      const double high = decode(format, static_cast<std::uint16_t>(word + 1));
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const auto middle = static_cast<float>((low + high) / 2);
      for (const float value : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, INFINITY)})
        for (const float signed_value : {value, -value})
          wrong += narrowed(format, signed_value) == expected(signed_value) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("narrowing rounds random values to nearest even") {
  for (const Format& format : {kF16, kBf16}) {
    const Rounder expected(format);
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < 100000; ++i) {
      const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(mix(i)));
      if (!std::isnan(value)) wrong += narrowed(format, value) == expected(value) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("many halves are widened as one is, from any address") {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<unsigned char> bytes(2 * halves.size() + 1);
  std::memcpy(bytes.data() + 1, halves.data(), 2 * halves.size());
  for (const Format& format : {kF16, kBf16}) {
    for (const std::size_t skip : {0, 1, 7, 65531}) {
      std::vector<float> out(halves.size() - skip);
      widen(format.elem, bytes.data() + 1 + 2 * skip, out.size(), out.data());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        const float one = widened(format, halves[skip + i]);
        const bool same = std::isnan(one) ? std::isnan(out[i]) : same_bits(one, out[i]);
        wrong += same ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("limits of f16 by hand") {
  CHECK(narrow_f16(65504.0F) == 0x7bff);  // the largest
  CHECK(narrow_f16(65519.9F) == 0x7bff);
  CHECK(narrow_f16(65520.0F) == 0x7c00);  // rounds to infinity
  CHECK(narrow_f16(0x1p-24F) == 0x0001);  // the smallest
  CHECK(narrow_f16(0x1p-25F) == 0x0000);  // halfway, to even
  CHECK(narrow_f16(0x1.8p-25F) == 0x0001);
  CHECK(narrow_f16(-0.0F) == 0x8000);
  CHECK(widen_f16(0x3c00) == 1.0F);
}

TEST_CASE("arrays convert at any alignment, and f32 passes through") {
  const std::vector<float> values{0.0F, -1.5F, 3.0F, 0x1p-20F, -65504.0F};
  for (const Elem elem : {Elem::f32, Elem::f16, Elem::bf16}) {
    std::vector<unsigned char> bytes(values.size() * elem_bytes(elem) + 1);
    std::vector<float> back(values.size());
    narrow(elem, values.data(), values.size(), bytes.data() + 1);
    widen(elem, bytes.data() + 1, values.size(), back.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float expected = elem == Elem::f32   ? values[i]
                             : elem == Elem::f16 ? widen_f16(narrow_f16(values[i]))
                                                 : widen_bf16(narrow_bf16(values[i]));
      CHECK(same_bits(back[i], expected));
    }
    widen(elem, nullptr, 0, nullptr);
    narrow(elem, nullptr, 0, nullptr);
  }
  CHECK(std::string(elem_name(Elem::bf16)) == "bf16");
}

}  // namespace kvsim::test_half
