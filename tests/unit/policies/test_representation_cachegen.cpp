// Tests the prompt in bins that grow with depth: cachegen.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "policies/builtin.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/slow_codes.hpp"

using namespace kvsim;
using namespace kvsim::policy;
using namespace kvsim::policy::test;

namespace {

struct Bins {
  double keys = 0, values = 0;
};

/// The released code's table for the layers of a model with 32.
Bins table(int level, std::size_t layer) {
  if (level == 3) return {32, 32};
  if (level == 2) return {layer < 10 ? 32.0 : 16.0, layer < 2 ? 32.0 : 16.0};
  return {layer < 20 ? 16.0 : 12.0, layer < 2 ? 16.0 : 12.0};
}

}  // namespace

TEST_CASE("cachegen worked by hand") {
  // Level 1 in a deep layer: 12 bins are 5 steps on each side of 0. With 10 as the largest number of both
  // heads a step is 2: 5 is in the middle of 2 and 3 steps and goes to the even 2, 7 to the even 4.
  const float infinity = std::numeric_limits<float>::infinity();
  RepresentedCache cache({.representation = "cachegen(level=1)",
                          .prompt = 2,
                          .n_lanes = 2,
                          .dim = 2,
                          .length = 3,
                          .keys = {10, 5, -7, 0.9F, 0, 0, 0, 0, 1, 2, 3, 4},
                          .values = {std::nanf(""), 1, -infinity, infinity, 5, -5, 4, 0, 1, 2, 3, 4},
                          .layer = 3,
                          .n_layers = 4});
  CHECK(cache.key(0, 0, 0) == 10);
  CHECK(cache.key(0, 1, 0) == 4);
  CHECK(cache.key(0, 0, 1) == -8);
  CHECK(cache.key(0, 1, 1) == 0);
  for (const std::size_t lane : {0U, 1U})
    for (const std::size_t c : {0U, 1U}) CHECK(cache.key(1, c, lane) == 0);
  CHECK(cache.value(0, 0, 0) == 0);
  CHECK(cache.value(0, 1, 0) == 0);
  CHECK(cache.value(0, 0, 1) == -65504);  // as the largest 16-bit scale has it
  CHECK(cache.value(0, 1, 1) == 65504);
  CHECK(cache.value(1, 1, 0) == -5);
  CHECK(cache.value(1, 0, 1) == 4);
  // Four numbers of 12 bins are one of 12^4 = 20,736, which takes 15 bits, and a scale takes 16; of keys and
  // of values.
  CHECK(cache.ledger() == Ledger{.codes = 2 * 2 * 15, .parameters = 2 * 2 * 16});
  // What is generated stays as it comes, also in the slot of a token of the prompt.
  cache.append({0});
  CHECK(cache.key(2, 1, 1) == 4);
  CHECK(cache.ledger() == Ledger{.exact = 8 * 16, .codes = 2 * 15, .parameters = 2 * 16});
}

TEST_CASE("cachegen's bins by level and depth, from their definition") {
  for (const int level : {1, 2, 3})
    for (const std::size_t n_layers : {32U, 4U, 80U})
      for (std::size_t layer = 0; layer < n_layers; ++layer) {
        if (n_layers == 80 && layer % 5 != 0) continue;
        CAPTURE(level, n_layers, layer);
        const Bins bins = table(level, layer * 32 / n_layers);
        RepresentedCache cache({.representation = "cachegen(level=" + std::to_string(level) + ")",
                                .prompt = 6,
                                .n_lanes = 2,
                                .dim = 6,
                                .length = 8,
                                .every = 2,
                                .layer = static_cast<std::uint32_t>(layer),
                                .n_layers = static_cast<std::uint32_t>(n_layers)});
        cache.append();
        for (const std::size_t p : {0U, 2U, 4U}) {
          double key = 0, value = 0;
          for (std::size_t lane = 0; lane < 2; ++lane)
            for (std::size_t c = 0; c < 6; ++c) {
              key = std::max(key, std::abs(static_cast<double>(cache.recorded_key(p, c, lane))));
              value = std::max(value, std::abs(static_cast<double>(cache.recorded_value(p, c, lane))));
            }
          const auto read = [](double x, double largest, double n) {
            const double steps = n / 2 - 1, scale = as_half(largest) / steps;
            return std::clamp(std::nearbyint(x / scale), -steps, steps) * scale;
          };
          for (std::size_t lane = 0; lane < 2; ++lane)
            for (std::size_t c = 0; c < 6; ++c) {
              CHECK(static_cast<double>(cache.key(p, c, lane)) ==
                    Approx(read(cache.recorded_key(p, c, lane), key, bins.keys)).margin(1e-6));
              CHECK(static_cast<double>(cache.value(p, c, lane)) ==
                    Approx(read(cache.recorded_value(p, c, lane), value, bins.values)).margin(1e-6));
            }
        }
        CHECK(cache.ledger() == cache.closed_form());
        const auto bits = [](double n) { return static_cast<std::uint64_t>(std::ceil(12 * std::log2(n))); };
        CHECK(cache.ledger().codes == 3 * (bits(bins.keys) + bits(bins.values)));
        CHECK(cache.exact_keys() == 1);
      }
}

TEST_CASE("cachegen: more bins, smaller errors") {
  double before = 0;
  for (const char* level : {"3", "2", "1"}) {
    const RepresentedCache cache({.representation = "cachegen(level=" + std::string(level) + ")",
                                  .prompt = 50,
                                  .dim = 64,
                                  .length = 50,
                                  .layer = 30,
                                  .n_layers = 32});
    double error = 0;
    for (std::size_t p = 0; p < 50; ++p)
      for (std::size_t c = 0; c < 64; ++c)
        error +=
            std::pow(static_cast<double>(cache.key(p, c)) - static_cast<double>(cache.recorded_key(p, c)), 2);
    CHECK(error > before);
    before = error;
  }
}
