// Tests block floating point with sorted channels: block_float.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "policies/builtin.hpp"
#include "sim/base/rotary.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_block_float {

namespace {

/// A block in double: the exponent is found by trying.
std::vector<double> slow_block(const std::vector<double>& block, int bits) {
  double furthest = 0;
  for (const double x : block) furthest = std::max(furthest, std::abs(x));
  int exponent = 200;
  while (exponent > -126 && std::pow(2, exponent) > furthest) --exponent;
  const double step = std::pow(2, exponent) / std::pow(2, bits - 2);
  std::vector<double> out;
  for (const double x : block)
    out.push_back(std::clamp(std::nearbyint(x / step), 1 - std::pow(2, bits - 1), std::pow(2, bits - 1) - 1) *
                  step);
  return out;
}

/// Keys of `tokens` tokens and one lane with a few channels that are ten times as large, rotated.
std::vector<float> outlier_keys(std::size_t tokens, std::size_t dim, const Rotary& rotary) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> keys(tokens * dim);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = normal(random) * (i % dim % 16 == 5 ? 10.0F : 1.0F);
  rotate(rotary, 0, dim, keys);
  return keys;
}

double key_error(const std::string& representation, const std::vector<float>& keys, std::size_t dim,
                 const std::vector<float>& inv_freq) {
  const std::size_t tokens = keys.size() / dim;
  const RepresentedCache cache({.representation = representation,
                                .prompt = tokens,
                                .dim = dim,
                                .length = tokens,
                                .keys = keys,
                                .values = keys,
                                .inv_freq = inv_freq});
  double error = 0, all = 0;
  for (std::size_t p = 0; p < tokens; ++p)
    for (std::size_t c = 0; c < dim; ++c) {
      const double x = cache.recorded_key(p, c);
      error += (x - cache.key(p, c)) * (x - cache.key(p, c));
      all += x * x;
    }
  return std::sqrt(error / all);
}

}  // namespace

TEST_CASE("block_float worked by hand") {
  // 6.5 has the exponent 2, so with 4-bit mantissas a step is 1: halves go to the even number. 7.6 would be
  // 8, which is cut off on both sides. The exponent of a block of zeros does not matter.
  const float infinity = std::numeric_limits<float>::infinity();
  const RepresentedCache cache({.representation = "block_float(block=4,sort=false)",
                                .prompt = 1,
                                .dim = 8,
                                .length = 1,
                                .keys = {6.5F, 1.5F, 0.4F, -2.5F, 7.6F, -7.6F, 0, 1},
                                .values = {0, 0, 0, 0, infinity, -infinity, std::nanf(""), 1}});
  const std::vector<float> keys{6, 2, 0, -2, 7, -7, 0, 1};
  for (std::size_t c = 0; c < 8; ++c) CHECK(cache.key(0, c) == keys[c]);
  for (std::size_t c = 0; c < 4; ++c) CHECK(cache.value(0, c) == 0);
  CHECK(cache.value(0, 4) == 7 * 0x1p125F);
  CHECK(cache.value(0, 5) == -7 * 0x1p125F);
  CHECK(cache.value(0, 6) == 0);
  CHECK(cache.value(0, 7) == 0);
}

TEST_CASE("block_float equals a slow version of its definition") {
  const std::vector<float> inv_freq{1, 0.3F, 0.1F, 0.03F, 0.01F};
  for (const bool sort : {true, false})
    for (const int bits : {2, 4, 8})
      for (const std::size_t block : {2U, 4U, 12U}) {
        RepresentedCache cache({.representation = "block_float(bits=" + std::to_string(bits) + ",block=" +
                                                  std::to_string(block) + (sort ? ")" : ",sort=false)"),
                                .prompt = 40,
                                .n_lanes = 2,
                                .dim = 12,
                                .length = 60,
                                .inv_freq = inv_freq});
        for (int i = 0; i < 10; ++i) cache.append();
        for (std::size_t lane = 0; lane < 2; ++lane) {
          // Root mean squares before rotation: a pair is turned back by its angle.
          std::vector<double> squares(12);
          for (std::size_t p = 0; p < 40; ++p)
            for (std::size_t pair = 0; pair < 6; ++pair) {
              const double angle = pair < 5 ? static_cast<double>(static_cast<float>(p) * inv_freq[pair]) : 0;
              const double a = cache.recorded_key(p, pair < 5 ? pair : 10, lane);
              const double b = cache.recorded_key(p, pair < 5 ? pair + 5 : 11, lane);
              squares[pair < 5 ? pair : 10] += std::pow(a * std::cos(angle) + b * std::sin(angle), 2);
              squares[pair < 5 ? pair + 5 : 11] += std::pow(b * std::cos(angle) - a * std::sin(angle), 2);
            }
          std::vector<std::size_t> order(12);
          std::iota(order.begin(), order.end(), std::size_t{0});
          if (sort) std::ranges::sort(order, [&](auto i, auto j) { return squares[i] > squares[j]; });
          for (std::size_t p = 0; p < 50; ++p)
            for (std::size_t first = 0; first < 12; first += block) {
              std::vector<double> key, value;
              for (std::size_t i = first; i < first + block; ++i) {
                key.push_back(cache.recorded_key(p, order[i], lane));
                value.push_back(cache.recorded_value(p, i, lane));
              }
              key = slow_block(key, bits);
              value = slow_block(value, bits);
              for (std::size_t i = 0; i < block; ++i) {
                CAPTURE(sort, bits, block, lane, p, first, i);
                CHECK(cache.key(p, order[first + i], lane) == key[i]);
                CHECK(cache.value(p, first + i, lane) == value[i]);
              }
            }
        }
        CHECK(cache.ledger() == cache.closed_form());
      }
}

TEST_CASE("block_float's sizes: bits of a mantissa and eight for the exponent of a block") {
  const StorageShape shape{8, 128, 128, 16};
  for (const auto& [block, bits] :
       {std::pair<std::string, double>{"128", 4.0625}, {"64", 4.125}, {"32", 4.25}}) {
    const Part code = *parse_composition("full+block_float(block=" + block + ")", builtin()).representation;
    const Ledger ledger = code.ledger(shape, 100, 20);
    CHECK(static_cast<double>(ledger.bits()) == bits * 120 * 8 * 256);
    CHECK(ledger.shared == 8 * 128 * 16);
  }
}

TEST_CASE("with one block per vector sorting changes nothing, and in smaller ones it helps") {
  const std::size_t dim = 128;
  std::vector<float> inv_freq;
  for (int i = 0; i < 64; ++i) inv_freq.push_back(static_cast<float>(std::pow(10000, -i / 64.0)));
  // Without rotation, channels are what is sorted by; with it, both of a pair become large.
  for (const bool rotated : {false, true}) {
    const std::vector<float> pairs = rotated ? inv_freq : std::vector<float>{};
    const std::vector<float> keys = outlier_keys(200, dim, {.inv_freq = pairs});
    const auto error = [&](const std::string& block, bool sort) {
      return key_error("block_float(block=" + block + (sort ? ")" : ",sort=false)"), keys, dim, pairs);
    };
    CHECK(error("128", true) == error("128", false));
    CHECK(error("64", true) < error("64", false));
    CHECK(error("32", true) < error("32", false));
    CHECK(error("32", true) < error("64", true));
  }
}

TEST_CASE("block_float codes what it has decoded to the same, and refuses blocks that do not divide") {
  const RepresentedCache once(
      {.representation = "block_float(block=8)", .prompt = 50, .dim = 16, .length = 50});
  std::vector<float> keys, values;
  for (std::size_t p = 0; p < 50; ++p)
    for (std::size_t c = 0; c < 16; ++c) {
      keys.push_back(once.key(p, c));
      values.push_back(once.value(p, c));
    }
  const RepresentedCache twice({.representation = "block_float(block=8,sort=false)",
                                .prompt = 50,
                                .dim = 16,
                                .length = 50,
                                .keys = keys,
                                .values = values});
  for (std::size_t p = 0; p < 50; ++p)
    for (std::size_t c = 0; c < 16; ++c) CHECK(twice.value(p, c) == once.value(p, c));
  CHECK_THROWS_WITH(RepresentedCache({.representation = "block_float(block=3)", .prompt = 1}),
                    Catch::Contains("do not divide a vector of 4"));
}

}  // namespace kvsim::policy::test::test_representation_block_float
