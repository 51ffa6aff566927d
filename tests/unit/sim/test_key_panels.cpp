// Tests the products of queries and keys: the same bits on every path of the processor.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "sim/attention/key_panels.hpp"
#include "sim/base/half.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::test_key_panels {

namespace {

enum class Numbers { bf16, bf16_extremes, floats };

/// [rows, dim], with `stride` floats from row to row.
std::vector<float> numbers(Numbers kind, std::size_t rows, std::size_t stride, std::uint64_t seed) {
  std::vector<float> out(rows * stride);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t draw = mix(combine({seed, i}));
    out[i] = static_cast<float>(normal(combine({seed, i, 1})));
    if (kind == Numbers::bf16_extremes && draw % 4 == 0)
      out[i] = std::ldexp(out[i], static_cast<int>(draw / 4 % 120) - 130);  // down to subnormal numbers
    if (kind != Numbers::floats)
      out[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(out[i]) & 0xffff0000U);
  }
  return out;
}

float flushed(float x) {
  return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
}

/// The order that key_panels.hpp states, one operation at a time.
float slow_product(const float* q, const float* k, std::size_t dim, float scale) {
  float sum = 0;
  for (std::size_t pair = 0; pair < dim; pair += 2)
    for (const std::size_t c : {pair + 1, pair})
      if (c < dim) sum = flushed(std::fma(flushed(q[c]), flushed(k[c]), sum));
  return flushed(scale * sum);
}

}  // namespace

TEST_CASE("a product by hand") {
  // 2^24 + 1 is no float: component 1 comes first, and what is added to it is lost.
  const float q[] = {1, 0x1p24F, 1}, k[] = {1, 1, 4};
  float out = 0;
  sim::KeyPanels({k, 1, 3, 3}).products({q, 1, 3, 3}, 0.5F, 0, 1, &out, 1);
  CHECK(out == 0x1p23F + 2);
}

TEST_CASE("every path gives the bits of the stated order, and writes what it is asked for") {
  for (const Numbers kind : {Numbers::bf16, Numbers::bf16_extremes, Numbers::floats})
    for (const std::size_t dim : {1, 2, 7, 64, 80})
      for (const std::size_t n_queries : {1, 3, 15, 64}) {
        constexpr std::size_t kKeys = 131, kStride = 140;
        const std::size_t stride = dim + 3;
        const std::vector<float> q = numbers(kind, n_queries, stride, dim),
                                 k = numbers(kind, kKeys, stride, dim + 1000);
        const sim::KeyPanels panels({k.data(), kKeys, dim, stride});
        for (const sim::ProductPath path :
             {sim::ProductPath::pairs, sim::ProductPath::wide, sim::ProductPath::plain}) {
          if (!sim::path_available(path)) continue;
          for (const auto& [first, end] :
               {std::pair<std::size_t, std::size_t>{0, kKeys}, {5, 6}, {17, 112}, {48, 48}}) {
            std::vector<float> out(n_queries * kStride, -7.0F);
            panels.products(path, {q.data(), n_queries, dim, stride}, 0.3F, first, end, out.data(), kStride);
            for (std::size_t i = 0; i < n_queries; ++i)
              for (std::size_t j = 0; j < kStride; ++j) {
                const float expected = j < first || j >= end ? -7.0F
                                                             : slow_product(q.data() + i * stride,
                                                                            k.data() + j * stride, dim, 0.3F);
                if (out[i * kStride + j] != expected)
                  FAIL("path " << static_cast<int>(path) << ", numbers " << static_cast<int>(kind) << ", dim "
                               << dim << ", query " << i << ", key " << j << ": " << out[i * kStride + j]
                               << " is not " << expected);
              }
          }
        }
      }
  SUCCEED();
}

TEST_CASE("queries that are no bf16 numbers meet keys that are") {
  const std::vector<float> q = numbers(Numbers::floats, 9, 16, 1), k = numbers(Numbers::bf16, 40, 16, 2);
  const sim::KeyPanels panels({k.data(), 40, 16, 16});
  for (const sim::ProductPath path :
       {sim::ProductPath::pairs, sim::ProductPath::wide, sim::ProductPath::plain}) {
    if (!sim::path_available(path)) continue;
    std::vector<float> out(9 * 40);
    panels.products(path, {q.data(), 9, 16, 16}, 1, 0, 40, out.data(), 40);
    for (std::size_t i = 0; i < 9; ++i)
      for (std::size_t j = 0; j < 40; ++j)
        CHECK(out[i * 40 + j] == slow_product(q.data() + i * 16, k.data() + j * 16, 16, 1));
  }
}

TEST_CASE("panels take the bytes that are announced") {
  CHECK(sim::KeyPanels::bytes(4096, 128, true) == 4096 * 128 * 2);
  CHECK(sim::KeyPanels::bytes(4096, 128, false) == 4096 * 128 * 4);
  CHECK(sim::KeyPanels::bytes(17, 3, true) == 32 * 4 * 2);
}

}  // namespace kvsim::test_key_panels
