// Counter-based random numbers: known values, and the properties that draws rely on.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "sim/base/rng.hpp"

namespace kvsim::test_rng {

TEST_CASE("mix is SplitMix64") {
  // First outputs of the published generator for seed 0: state k * 0x9e37..., so mix of the state before the
  // step.
  CHECK(mix(0) == 0xe220a8397b1dcdafULL);
  CHECK(mix(0x9e3779b97f4a7c15ULL) == 0x6e789e6aa1b965f4ULL);
  CHECK(mix(2 * 0x9e3779b97f4a7c15ULL) == 0x06c45d188009454fULL);
  static_assert(mix(0) != mix(1));
}

TEST_CASE("one flipped bit of the key flips about half of the value") {
  double flips = 0;
  for (std::uint64_t i = 0; i < 500; ++i)
    for (int bit = 0; bit < 64; ++bit) flips += std::popcount(mix(i * 977) ^ mix((i * 977) ^ (1ULL << bit)));
  CHECK(flips / (500 * 64) == Approx(32).margin(0.2));
}

TEST_CASE("combined keys depend on every part and on their order") {
  CHECK(combine({1, 2}) != combine({2, 1}));
  CHECK(combine({1, 2}) != combine({1, 2, 0}));
  CHECK(combine({0}) != combine({0, 0}));
  std::set<std::uint64_t> seen;
  for (std::uint64_t a = 0; a < 40; ++a)
    for (std::uint64_t b = 0; b < 40; ++b)
      for (std::uint64_t c = 0; c < 10; ++c) seen.insert(combine({a, b, c}));
  CHECK(seen.size() == 16000);
}

TEST_CASE("names are hashed by FNV-1a") {
  CHECK(key_of("") == 0xcbf29ce484222325ULL);
  CHECK(key_of("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(key_of("foobar") == 0x85944171f73967e8ULL);
}

TEST_CASE("uniform draws fill [0, 1) evenly") {
  std::vector<int> bins(20);
  double sum = 0;
  constexpr int kDraws = 200000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double u = uniform01(i);
    REQUIRE((u >= 0 && u < 1));
    sum += u;
    ++bins[static_cast<std::size_t>(u * 20)];
  }
  CHECK(sum / kDraws == Approx(0.5).margin(0.003));
  double chi_squared = 0;
  for (const int count : bins) chi_squared += std::pow(count - kDraws / 20.0, 2) / (kDraws / 20.0);
  CHECK(chi_squared < 43.8);  // 19 degrees of freedom, p = 0.001
}

TEST_CASE("normal draws have the moments of the standard normal") {
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kDraws = 200000;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = normal(i);
    REQUIRE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  CHECK(sum / kDraws == Approx(0).margin(0.01));
  CHECK(squares / kDraws == Approx(1).margin(0.015));
  CHECK(fourth / kDraws == Approx(3).margin(0.1));
  CHECK(beyond_two / double(kDraws) == Approx(0.0455).margin(0.002));
}

}  // namespace kvsim::test_rng
