// Tests the codes of groups of numbers.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "policies/parts/codes/scalar_code.hpp"
#include "sim/base/half.hpp"

namespace kvsim::policy::test_scalar_code {

using Numbers = std::vector<float>;

namespace {

Numbers coded(ScalarKind kind, std::uint64_t bits, Numbers numbers) {
  ScalarCode{kind, bits}.code(numbers.data(), numbers.size());
  return numbers;
}

/// The same, written from the definition in double, with the scale and the least number as 16-bit floats.
Numbers slowly_coded(ScalarKind kind, std::uint64_t bits, const Numbers& numbers) {
  const auto half = [](double x) { return double{widen_f16(narrow_f16(static_cast<float>(x)))}; };
  double least = numbers[0], largest = numbers[0];
  for (const float x : numbers) {
    least = std::min(least, double{x});
    largest = std::max(largest, double{x});
  }
  const double codes = std::pow(2, static_cast<double>(bits));
  Numbers out;
  for (const float x : numbers) {
    double back = 0;
    if (kind == ScalarKind::offset) {
      const double scale = half(static_cast<float>(largest - least) / (codes - 1)), from = half(least);
      back = scale > 0 ? std::clamp(std::nearbyint((x - from) / scale), 0.0, codes - 1) * scale + from : from;
    } else if (kind == ScalarKind::absmax) {
      const double most = codes / 2 - 1, scale = half(std::max(-least, largest) / most);
      back = scale > 0 ? std::clamp(std::nearbyint(x / scale), -most, most) * scale : 0;
    } else {
      const double low = std::min(least, 0.0), scale = half((std::max(largest, 0.0) - low) / (codes - 1));
      const double zero = scale > 0 ? std::nearbyint(-low / scale) : 0;
      back = scale > 0 ? (std::clamp(std::nearbyint(x / scale) + zero, 0.0, codes - 1) - zero) * scale : 0;
    }
    out.push_back(static_cast<float>(back));
  }
  return out;
}

}  // namespace

TEST_CASE("codes with an offset, worked by hand") {
  // Two bits from -1 to 2: a scale of 1, the codes 0, 1, 2, 3. Halves of a step round to the even code.
  CHECK(coded(ScalarKind::offset, 2, {-1, 2, 0.25F, 0.75F}) == Numbers{-1, 2, 0, 1});
  CHECK(coded(ScalarKind::offset, 2, {-1, 2, -0.5F, 0.5F, 1.5F}) == Numbers{-1, 2, -1, 1, 1});
  // One bit: the least and the largest number.
  CHECK(coded(ScalarKind::offset, 1, {4, 5, 6}) == Numbers{4, 4, 6});
}

TEST_CASE("codes with a code of 0, worked by hand") {
  // Two bits from -1 to 2: zero is code 1, and 0 is read back exactly.
  CHECK(coded(ScalarKind::integer, 2, {-1, 2, 0, 0.75F}) == Numbers{-1, 2, 0, 1});
  // A group on one side of 0 reaches to 0: a scale of 2, from 0 to 6.
  CHECK(coded(ScalarKind::integer, 2, {4, 5, 6}) == Numbers{4, 4, 6});
}

TEST_CASE("codes on both sides of 0, worked by hand") {
  // Two bits: -1, 0 and 1 times the largest.
  CHECK(coded(ScalarKind::absmax, 2, {-3, 1, 2, 0}) == Numbers{-3, 0, 3, 0});
}

TEST_CASE("a clipped range, worked by hand") {
  // Half of -2 to 4: from -1 to 2, and what lies beyond becomes its ends.
  Numbers numbers{-2, 4, 0, 1.25F};
  ScalarCode{ScalarKind::integer, 2, 0.5F}.code(numbers.data(), numbers.size());
  CHECK(numbers == Numbers{-1, 2, 0, 1});
}

TEST_CASE("groups without a range read back as one number") {
  CHECK(coded(ScalarKind::offset, 4, {1.5F, 1.5F}) == Numbers{1.5F, 1.5F});
  CHECK(coded(ScalarKind::offset, 4, {7}) == Numbers{7});
  CHECK(coded(ScalarKind::integer, 4, {0, 0}) == Numbers{0, 0});
  CHECK(coded(ScalarKind::absmax, 4, {0, 0}) == Numbers{0, 0});
  // 1e-8 is below what a 16-bit float can hold as a scale.
  CHECK(coded(ScalarKind::offset, 4, {0, 1e-8F}) == Numbers{0, 0});
}

TEST_CASE("16 bits leave numbers as they are") {
  CHECK(coded(ScalarKind::offset, 16, {0.1F, 1e-20F, 3e30F}) == Numbers{0.1F, 1e-20F, 3e30F});
  CHECK(ScalarCode{ScalarKind::offset, 16}.group_bits() == 0);
}

TEST_CASE("numbers beyond 16-bit floats have codes, too") {
  for (const float x : coded(ScalarKind::offset, 4, {-3e38F, 0, 3e38F})) CHECK(std::isfinite(x));
  for (const float x : coded(ScalarKind::integer, 4, {-3e38F, 0, 3e38F})) CHECK(std::isfinite(x));
  for (const float x : coded(ScalarKind::absmax, 4, {-3e38F, 0, 3e38F})) CHECK(std::isfinite(x));
}

TEST_CASE("codes agree with their definition, and coding what was decoded changes nothing") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const ScalarKind kind : {ScalarKind::offset, ScalarKind::integer, ScalarKind::absmax})
    for (const std::uint64_t bits : {2, 3, 4, 8})
      for (int repeat = 0; repeat < 50; ++repeat) {
        Numbers numbers(1 + static_cast<std::size_t>(random() % 40));
        const float mean = static_cast<float>(repeat % 3 - 1) * 4;
        for (float& x : numbers) x = normal(random) + mean;
        const Numbers once = coded(kind, bits, numbers), expected = slowly_coded(kind, bits, numbers);
        CAPTURE(bits, repeat);
        REQUIRE(once.size() == expected.size());
        // A number in the middle between two codes may go either way in float and in double.
        std::size_t differ = 0;
        for (std::size_t i = 0; i < once.size(); ++i)
          if (once[i] != Approx(expected[i]).margin(1e-6)) ++differ;
        CHECK(differ == 0);
        std::vector<float> strided(numbers.size() * 3, -77.0F);
        for (std::size_t i = 0; i < numbers.size(); ++i) strided[3 * i] = numbers[i];
        ScalarCode{kind, bits}.code(strided.data(), numbers.size(), 3);
        for (std::size_t i = 0; i < numbers.size(); ++i) CHECK(strided[3 * i] == once[i]);
        for (std::size_t i = 0; i < strided.size(); ++i)
          if (i % 3 != 0) CHECK(strided[i] == -77.0F);
      }
}

}  // namespace kvsim::policy::test_scalar_code
