// Tests the formats of inference engines: fp8, int8, q8_0, q4_0, nvfp4.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "policies/parts/codes/float_format.hpp"
#include "tests/unit/policies/representation_feeder.hpp"

namespace kvsim::policy::test::test_representation_engines {

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

TEST_CASE("small floats are the nearest number of their format") {
  const struct {
    FloatFormat format;
    std::set<double> numbers;
  } formats[] = {{kE4M3, numbers_of(4, 3, 7, 448)},
                 {kE5M2, numbers_of(5, 2, 15, 57344)},
                 {kE2M1, numbers_of(2, 1, 1, 6)}};
  CHECK(formats[2].numbers.size() == 15);
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

TEST_CASE("llama.cpp's cache has a type for keys and one for values") {
  const CacheShape eight{.representation = "q8_0", .prompt = 20, .dim = 64};
  const auto in = [&](const std::string& text) {
    CacheShape shape = eight;
    shape.representation = text;
    return RepresentedCache(shape);
  };
  const RepresentedCache q8(eight), q4 = in("q4_0"), both = in("llama_cpp"),
                                    same = in("llama_cpp(values=q8_0)"),
                                    half = in("llama_cpp(keys=f16,values=q4_0)");
  for (std::size_t position = 0; position < 20; ++position)
    for (std::size_t c = 0; c < 64; ++c) {
      CHECK(both.key(position, c) == q8.key(position, c));
      CHECK(both.value(position, c) == q4.value(position, c));
      CHECK(same.value(position, c) == q8.value(position, c));
      CHECK(half.key(position, c) == nearest_half(half.recorded_key(position, c)));
    }
  // A key of 64 numbers: two blocks of 32 bytes and a scale of two; a value: two of 16 and two.
  CHECK(both.ledger().bits() == 20 * 8 * (2 * 34 + 2 * 18));
  CHECK(same.ledger() == q8.ledger());
  CHECK(half.ledger().bits() == 20 * 8 * (2 * 64 + 2 * 18));
  for (const RepresentedCache* cache : {&both, &same, &half}) CHECK(cache->ledger() == cache->closed_form());
}

TEST_CASE("a vector of zeros stays one in every format") {
  for (const char* text :
       {"fp8", "int8", "int8(variant=vllm)", "q8_0", "q4_0", "llama_cpp", "turboquant", "nvfp4",
        "scalar(group=32)", "scalar(group=32,zero=integer)", "scalar(group=32,zero=absmax)"}) {
    CAPTURE(text);
    const RepresentedCache cache({.representation = text, .prompt = 3, .dim = 32, .scale = 0});
    for (std::size_t c = 0; c < 32; ++c) CHECK(cache.key(1, c) == 0);
  }
}

TEST_CASE("int8 worked by hand") {
  // A scale of 1: halves of it go to the even number, and towards 0 in vLLM's code.
  const CacheShape shape{.representation = "int8",
                         .prompt = 1,
                         .dim = 4,
                         .length = 1,
                         .keys = {-127, 2.5F, 3.5F, -0.6F},
                         .values = {0, 0, 1e30F, -1e30F}};
  const auto read = [](const RepresentedCache& cache) {
    const auto row = cache.rows().keys(0).row(0);
    return std::vector<float>(row.begin(), row.end());
  };
  const RepresentedCache plain(shape);
  CHECK(read(plain) == std::vector<float>{-127, 2, 4, -1});
  CHECK(plain.value(0, 2) == 127 * 65504.0F);  // the largest 16-bit scale
  CacheShape vllm = shape;
  vllm.representation = "int8(variant=vllm)";
  CHECK(read(RepresentedCache(vllm)) == std::vector<float>{-127, 2, 3, 0});
  // Its scales are not below 1e-6.
  vllm.keys = {1e-6F, 2e-6F, 3e-7F, 0};
  const std::vector<float> small = read(RepresentedCache(vllm));
  CHECK(static_cast<double>(small[0]) == Approx(1e-6));
  CHECK(static_cast<double>(small[1]) == Approx(2e-6));
  CHECK(small[2] == 0);
  // NaN has no code; an infinity is as the largest number.
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* variant : {"int8", "int8(variant=vllm)"}) {
    const RepresentedCache cache({.representation = variant,
                                  .prompt = 1,
                                  .dim = 4,
                                  .length = 1,
                                  .keys = {std::nanf(""), 127, 0, 0},
                                  .values = {-infinity, std::nanf(""), 1, infinity}});
    CHECK(read(cache) == std::vector<float>{0, 127, 0, 0});
    CHECK(cache.value(0, 0) < -1e6F);
    CHECK(cache.value(0, 0) == -cache.value(0, 3));
    CHECK(std::isfinite(cache.value(0, 3)));
    CHECK(cache.value(0, 1) == 0);
    CHECK(cache.value(0, 2) == 0);
  }
}

TEST_CASE("int8 is the plain code of a whole vector under another name, and keeps numbers to half a step") {
  const CacheShape shape{.representation = "int8", .prompt = 30, .n_lanes = 2, .dim = 24, .length = 40};
  CacheShape other = shape;
  other.representation = "scalar(bits=8,group=0,zero=absmax)";
  CacheShape cut = shape;
  cut.representation = "int8(variant=vllm)";
  RepresentedCache int8(shape), scalar(other), vllm(cut);
  for (RepresentedCache* cache : {&int8, &scalar, &vllm}) cache->append();
  for (std::size_t lane = 0; lane < 2; ++lane)
    for (std::size_t position = 0; position < 31; ++position) {
      double largest = 0;
      for (std::size_t c = 0; c < 24; ++c)
        largest = std::max(largest, std::abs(static_cast<double>(int8.recorded_key(position, c, lane))));
      for (std::size_t c = 0; c < 24; ++c) {
        const double x = int8.recorded_key(position, c, lane);
        CHECK(int8.key(position, c, lane) == scalar.key(position, c, lane));
        CHECK(int8.value(position, c, lane) == scalar.value(position, c, lane));
        // A 16-bit scale is off by a part in 2,048 at most.
        CHECK(std::abs(int8.key(position, c, lane) - x) <= largest / 127 / 2 + largest / 2048);
        // vLLM's arithmetic in 32 bits, by which even the largest number may lose its last step.
        const float scale = static_cast<float>(largest) / 127, inverse = 1 / scale;
        CHECK(vllm.key(position, c, lane) ==
              std::trunc(vllm.recorded_key(position, c, lane) * inverse) * scale);
      }
    }
  CHECK(int8.ledger() == int8.closed_form());
  CHECK(int8.ledger() == scalar.ledger());
  CHECK(int8.ledger().bits() == 31 * 2 * 2 * (24 * 8 + 16));
  CHECK(vllm.ledger() == vllm.closed_form());
  CHECK(vllm.ledger().bits() == 31 * 2 * 2 * (24 * 8 + 32));
}

TEST_CASE("nvfp4 worked by hand") {
  // The largest number of the prompt, 6 * 448 * 2^-4 = 168, is in the second block: an outer scale of 2^-4.
  // The first block has 3 as its largest and the scale 3 / 6 * 16 = 8, times 2^-4, so a step of 0.5 of the
  // format is one of 0.25 here. The value's block is the same 2^-20 times as large.
  std::vector<float> keys{3, -2.5F, 2.4F, 1.25F, 0.9F, 0.125F, 0.13F, -0.5F};
  keys.resize(16);
  keys.push_back(168);
  keys.resize(32);
  std::vector<float> read{3, -2, 2,     1,
                          1, 0,  0.25F, -0.5F};  // 2.5 is in the middle of 2 and 3, 1.25 of 1 and 1.5
  read.resize(16);
  read.push_back(168);
  read.resize(32);
  std::vector<float> values = keys;
  for (float& x : values) x *= 0x1p-20F;
  // Later tokens: a larger number becomes the largest, NaN becomes 0, and so does what is too small beside
  // it.
  keys.resize(64, 0);
  values.resize(64, 0);
  keys[32] = 1e6F;
  keys[33] = std::nanf("");
  keys[34] = 1;
  keys[48] = 1e-5F;  // the block's scale is below the least e4m3 above 0
  RepresentedCache cache(
      {.representation = "nvfp4", .prompt = 1, .dim = 32, .length = 2, .keys = keys, .values = values});
  cache.append();
  for (std::size_t c = 0; c < 32; ++c) {
    CAPTURE(c);
    CHECK(cache.key(0, c) == read[c]);
    CHECK(cache.value(0, c) == read[c] * 0x1p-20F);
  }
  CHECK(cache.key(1, 0) == 168);
  CHECK(cache.key(1, 1) == 0);
  CHECK(cache.key(1, 2) == 0);
  CHECK(cache.key(1, 16) == 0);
}

TEST_CASE("nvfp4, from its definition") {
  const std::set<double> codes = numbers_of(2, 1, 1, 6), block_scales = numbers_of(4, 3, 7, 448);
  for (const bool scaled : {true, false}) {
    RepresentedCache cache({.representation = scaled ? "nvfp4" : "nvfp4(scale=one)",
                            .prompt = 30,
                            .n_lanes = 2,
                            .dim = 48,
                            .length = 40,
                            .scale = 5});
    cache.append();
    for (std::size_t lane = 0; lane < 2; ++lane) {
      double most = 0;
      for (std::size_t position = 0; position < 30; ++position)
        for (std::size_t c = 0; c < 48; ++c)
          most = std::max(most, std::abs(static_cast<double>(cache.recorded_key(position, c, lane))));
      const double outer = scaled ? static_cast<double>(static_cast<float>(most) / (6 * 448)) : 1;
      for (std::size_t position = 0; position < 31; ++position)
        for (std::size_t block = 0; block < 48; block += 16) {
          double furthest = 0;
          for (std::size_t c = block; c < block + 16; ++c)
            furthest =
                std::max(furthest, std::abs(static_cast<double>(cache.recorded_key(position, c, lane))));
          const double scale = slowly_nearest(block_scales, furthest / 6 / outer) * outer;
          for (std::size_t c = block; c < block + 16; ++c)
            CHECK(cache.key(position, c, lane) ==
                  Approx(slowly_nearest(codes, cache.recorded_key(position, c, lane) / scale) * scale)
                      .epsilon(1e-5)
                      .margin(1e-9));
        }
    }
    CHECK(cache.ledger() == cache.closed_form());
    CHECK(cache.ledger().bits() == 31 * 2 * 2 * 48 * 9 / 2);  // 4.5 bits a number
    CHECK(cache.ledger().shared == (scaled ? 2 * 2 * 32 : 0));
  }
}

TEST_CASE("blocks that do not divide a vector are refused") {
  for (const char* text : {"nvfp4", "q8_0", "q4_0"})
    CHECK_THROWS_WITH(RepresentedCache({.representation = text, .prompt = 1, .dim = 24}),
                      Catch::Contains("do not divide a vector of 24"));
}

}  // namespace kvsim::policy::test::test_representation_engines
