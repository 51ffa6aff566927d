#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/cost/encoding.hpp"

namespace kvsim::cost {
namespace {

/// Returns the bits per element, for a number of tokens that leaves the residual of the keys empty.
double bits_per_element(const std::string& name, std::uint64_t dim = 128) {
  constexpr std::uint64_t kTokens = 1 << 20;
  return 8 * static_cast<double>(encoded_bytes(find_encoding(name).keys, kTokens, dim)) /
         static_cast<double>(kTokens * dim);
}

}  // namespace

TEST_CASE("bits per element, scales included", "[cost][encoding]") {
  CHECK(bits_per_element("fp16") == 16);
  CHECK(bits_per_element("bf16") == 16);
  CHECK(bits_per_element("fp32") == 32);
  CHECK(bits_per_element("fp8") == 8);
  CHECK(bits_per_element("int8") == 8.25);                   // 32 bits per 128
  CHECK(bits_per_element("int8", 64) == 8.5);                // per 64
  CHECK(bits_per_element("nvfp4") == 4.5);                   // 8 per 16
  CHECK(bits_per_element("flexgen4") == 4.5);                // 32 per 64
  CHECK(bits_per_element("flexgen4", 96) == 4 + 64.0 / 96);  // two groups for 96
  CHECK(bits_per_element("kivi2") == 3);                     // 32 per 32
  CHECK(bits_per_element("kivi4") == 5);
  for (const KvEncoding& encoding : known_encodings()) CHECK_FALSE(encoding.source.empty());
}

TEST_CASE("bytes of encoded vectors", "[cost][encoding]") {
  const auto bytes = [](const std::string& name, std::uint64_t tokens, std::uint64_t dim) {
    return encoded_bytes(find_encoding(name).keys, tokens, dim);
  };
  CHECK(bytes("fp16", 10, 128) == 2560);
  CHECK(bytes("int8", 10, 128) == 10 * (128 + 4));
  CHECK(bytes("nvfp4", 10, 128) == 10 * (64 + 8));
  // 96 components are two groups of 64: 48 bytes and two pairs of 16-bit numbers.
  CHECK(bytes("flexgen4", 10, 96) == 10 * (48 + 8));
  // Three components of 4 bits in one group of 8 bits are 20 bits; two tokens 5 bytes, one 3.
  CHECK(bytes("nvfp4", 2, 3) == 5);
  CHECK(bytes("nvfp4", 1, 3) == 3);
  CHECK(bytes("kivi2", 0, 128) == 0);
}

TEST_CASE("KIVI keeps its latest tokens in 16 bits", "[cost][encoding]") {
  const KvEncoding kivi = find_encoding("kivi2");
  // Keys: 498 mod 128 = 114 tokens of 256 bytes, 384 of 128 * 2 bits and 128 * 12 groups of 4 bytes.
  CHECK(encoded_bytes(kivi.keys, 498, 128) == 114 * 256 + 384 * 32 + 128 * 12 * 4);
  // Values: 128 tokens of 256 bytes, 370 of 32 bytes and 4 groups of 4 bytes.
  CHECK(encoded_bytes(kivi.values, 498, 128) == 128 * 256 + 370 * (32 + 16));
  // Fewer tokens than the residual are as without encoding.
  CHECK(encoded_bytes(kivi.keys, 127, 128) == 127 * 256);
  CHECK(encoded_bytes(kivi.values, 127, 128) == 127 * 256);
  // Keys are encoded 128 at once.
  CHECK(encoded_bytes(kivi.keys, 128, 128) == 128 * 48);
  CHECK(encoded_bytes(kivi.values, 128, 128) == 128 * 256);
  // The saving at 498 tokens is 2.6 times with a residual of 128, 4.4 times with 32.
  const auto saving = [&](std::uint64_t residual) {
    KvEncoding other = kivi;
    other.keys.residual = other.values.residual = residual;
    return 2 * 498 * 256.0 /
           static_cast<double>(encoded_bytes(other.keys, 498, 128) + encoded_bytes(other.values, 498, 128));
  };
  CHECK(saving(128) == Approx(2.598).margin(0.001));
  CHECK(saving(32) == Approx(4.381).margin(0.001));
}

TEST_CASE("empty slots take as much as encoded tokens", "[cost][encoding]") {
  const KvEncoding kivi = find_encoding("kivi4");
  // 100 values, all in the residual: 12 empty slots are 12 * (64 + 16) bytes.
  CHECK(empty_bytes(kivi.values, 100, 12, 128) == 12 * 80);
  // 128 encoded keys fill four groups of tokens: the first empty slot opens a fifth, the next finds it open.
  CHECK(empty_bytes(kivi.keys, 128, 1, 128) == 64 + 128 * 4);
  CHECK(empty_bytes(kivi.keys, 128, 2, 128) == 128 + 128 * 4);
  CHECK(empty_bytes(find_encoding("fp16").keys, 5, 3, 128) == 768);
  CHECK(empty_bytes(find_encoding("fp16").keys, 5, 0, 128) == 0);
}

TEST_CASE("unknown encodings and sizes that do not fit", "[cost][encoding]") {
  CHECK_THROWS_WITH(find_encoding("kivi"), Catch::Contains("kivi2"));
  CHECK_THROWS_AS(find_encoding(""), Error);
  CHECK_THROWS_WITH(encoded_bytes({}, std::uint64_t{1} << 60, 128), Catch::Contains("64 bits"));
  CHECK_THROWS_WITH(encoded_bytes({.residual = ~std::uint64_t{0}}, std::uint64_t{1} << 60, 128),
                    Catch::Contains("64 bits"));
  CHECK_THROWS_AS(empty_bytes({}, 5, ~std::uint64_t{0}, 128), Error);
}

}  // namespace kvsim::cost
