// Tests the formats of inference engines: fp8, q8_0, q4_0.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "policies/parts/float_format.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

using namespace kvsim::policy;
using namespace kvsim::policy::test;

namespace {

/// Every finite number of a format, from its bits.
std::set<double> numbers_of(int exponent_bits, int mantissa_bits, int bias, double largest) {
  std::set<double> out;
  for (int bits = 0; bits < 1 << (exponent_bits + mantissa_bits); ++bits) {
    const int exponent = bits >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
    const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
    const double x =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    if (x > largest) continue;
    out.insert(x);
    out.insert(-x);
  }
  return out;
}

/// The nearest of the numbers; of two the one whose place among them is even, counted from 0.
double slowly_nearest(const std::set<double>& numbers, double x) {
  const double magnitude = std::abs(x);
  std::vector<double> positive(numbers.lower_bound(0.0), numbers.end());
  std::size_t best = 0;
  for (std::size_t i = 1; i < positive.size(); ++i) {
    const double closer = std::abs(positive[i] - magnitude) - std::abs(positive[best] - magnitude);
    if (closer < 0 || (closer == 0 && i % 2 == 0)) best = i;
  }
  return std::copysign(positive[best], x);
}

}  // namespace

TEST_CASE("8-bit floats are the nearest number of their format") {
  const struct {
    FloatFormat format;
    std::set<double> numbers;
  } formats[] = {{kE4M3, numbers_of(4, 3, 7, 448)}, {kE5M2, numbers_of(5, 2, 15, 57344)}};
  for (const auto& [format, numbers] : formats) {
    for (const double x : numbers) CHECK(static_cast<double>(format.nearest(static_cast<float>(x))) == x);
    // Halves between neighbours, and a little to each side of them.
    double before = 0;
    for (const double x : numbers) {
      if (x <= 0) continue;
      for (const double y : {(before + x) / 2, (before + x) / 2 * 1.001, (before + x) / 2 * 0.999})
        for (const double sign : {-1.0, 1.0}) {
          const auto z = static_cast<float>(sign * y);
          CAPTURE(z);
          CHECK(static_cast<double>(format.nearest(z)) == slowly_nearest(numbers, static_cast<double>(z)));
        }
      before = x;
    }
  }
  CHECK(kE4M3.nearest(1e30F) == 448);
  CHECK(kE5M2.nearest(-1e30F) == -57344);
  CHECK(kE4M3.nearest(std::ldexp(1.0F, -10)) == 0);  // half of the least number above 0
  CHECK(kE4M3.nearest(std::ldexp(1.01F, -10)) == std::ldexp(1.0F, -9));
}

TEST_CASE("fp8 keeps a normal number to a sixteenth, or an eighth") {
  for (const auto& [text, most] : {std::pair{"fp8", 1.0 / 16}, std::pair{"fp8(format=e5m2)", 1.0 / 8}}) {
    const RepresentedCache cache({.representation = text, .prompt = 100, .dim = 32});
    for (std::size_t position = 0; position < 100; ++position)
      for (std::size_t c = 0; c < 32; ++c) {
        const double x = cache.recorded_key(position, c);
        if (std::abs(x) < std::ldexp(1.0, -6)) continue;
        CHECK(std::abs(cache.key(position, c) - x) <= most * std::abs(x));
      }
    CHECK(cache.ledger() == cache.closed_form());
    CHECK(cache.ledger().bits() == 100 * 2 * 32 * 8);
    CHECK(cache.ledger().shared == 0);
  }
}

TEST_CASE("fp8 with a scale from the prompt reads its largest number back") {
  RepresentedCache cache({.representation = "fp8(scale=head)", .prompt = 40, .n_lanes = 2, .dim = 8});
  for (std::size_t lane = 0; lane < 2; ++lane) {
    double largest = 0, read = 0;
    for (std::size_t position = 0; position < 40; ++position)
      for (std::size_t c = 0; c < 8; ++c) {
        largest = std::max(largest, std::abs(static_cast<double>(cache.recorded_key(position, c, lane))));
        read = std::max(read, std::abs(static_cast<double>(cache.key(position, c, lane))));
      }
    CHECK(read == Approx(largest).epsilon(1e-6));
  }
  cache.append();
  CHECK(cache.ledger() == cache.closed_form());
  CHECK(cache.ledger().shared == 2 * 2 * 32);
}

TEST_CASE("q8_0 and q4_0, from their definition") {
  RepresentedCache eight({.representation = "q8_0", .prompt = 20, .dim = 64}),
      four({.representation = "q4_0", .prompt = 20, .dim = 64});
  eight.append();
  four.append();  // a token's own query reads its code, too
  CHECK(eight.exact_keys() == 0);
  CHECK(four.exact_values() == 0);
  for (std::size_t position = 0; position < 21; ++position)
    for (std::size_t block = 0; block < 64; block += 32) {
      double largest = 0, furthest = 0;
      for (std::size_t c = block; c < block + 32; ++c) {
        const double x = eight.recorded_key(position, c);
        if (std::abs(x) > largest) furthest = x;
        largest = std::max(largest, std::abs(x));
      }
      for (std::size_t c = block; c < block + 32; ++c) {
        const double x = eight.recorded_key(position, c);
        // The scale is read back in 16 bits, to a part in 2,048.
        CHECK(std::abs(eight.key(position, c) - x) <= largest / 127 / 2 + largest / 2048);
        const double scale = furthest / -8, code = std::min(15.0, std::floor(x / scale + 8.5)) - 8;
        CHECK(four.key(position, c) == Approx(code * scale).epsilon(1e-3).margin(1e-6));
        CHECK(std::abs(code) <= 8);
      }
    }
  CHECK(eight.ledger() == eight.closed_form());
  CHECK(four.ledger() == four.closed_form());
  CHECK(eight.ledger().bits() == 21 * 2 * 64 * 17 / 2);  // 8.5 bits a number
  CHECK(four.ledger().bits() == 21 * 2 * 64 * 9 / 2);    // 4.5
}

TEST_CASE("a vector of zeros stays one in every format") {
  for (const char* text : {"fp8", "q8_0", "q4_0", "scalar(group=32)", "scalar(group=32,zero=integer)",
                           "scalar(group=32,zero=absmax)"}) {
    CAPTURE(text);
    const RepresentedCache cache({.representation = text, .prompt = 3, .dim = 32, .scale = 0});
    for (std::size_t c = 0; c < 32; ++c) CHECK(cache.key(1, c) == 0);
  }
}
