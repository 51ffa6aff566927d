#pragma once
/// The floats of one vector register, and the operations of the kernels on them. Results depend on whether
/// the instruction set compiled for rounds a product and a sum once, never on the width of its registers
/// where sums go into SixteenSums, and never on the alignment of data.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "sim/base/half.hpp"

namespace kvsim::model::cpu {

#if defined(__AVX512F__)
constexpr std::size_t kWide = 16;
constexpr std::size_t kWideRegisters = 32;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr std::size_t kWide = 8;
constexpr std::size_t kWideRegisters = 16;
#else
constexpr std::size_t kWide = 4;
constexpr std::size_t kWideRegisters = 16;
#endif

using Wide [[gnu::vector_size(kWide * sizeof(float))]] = float;
using WideInt [[gnu::vector_size(kWide * sizeof(float))]] = std::int32_t;

inline Wide load(const float* from) {
  Wide wide;
  std::memcpy(&wide, from, sizeof wide);
  return wide;
}
inline void store(Wide wide, float* to) {
  std::memcpy(to, &wide, sizeof wide);
}
inline Wide all_of(float value) {
  return value - Wide{};  // compiles to one instruction; 0 + value would not, because it changes -0
}

/// a * b + c, rounded once where the instruction set has a fused operation.
inline Wide multiply_add(Wide a, Wide b, Wide c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

/// Loads the next kWide stored elements, at any alignment.
template <Elem elem>
Wide load_stored(const std::byte* from) {
  if constexpr (elem == Elem::f32) {
    Wide wide;
    std::memcpy(&wide, from, sizeof wide);
    return wide;
  } else {
    using Halves [[gnu::vector_size(kWide * sizeof(std::uint16_t))]] = std::uint16_t;
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    if constexpr (elem == Elem::bf16) {
#if defined(__AVX512F__)
      const auto words = reinterpret_cast<WideInt>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(halves)));
#elif defined(__AVX2__) && defined(__FMA__)
      const auto words = reinterpret_cast<WideInt>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(halves)));
#else
      const WideInt words = __builtin_convertvector(halves, WideInt);
#endif
      return reinterpret_cast<Wide>(words << 16);
    } else {
#if defined(__AVX512F__)
      return _mm512_cvtph_ps(reinterpret_cast<__m256i>(halves));
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
      return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
#endif
      Wide wide;
      for (std::size_t i = 0; i < kWide; ++i) wide[i] = widen_f16(halves[i]);
      return wide;
    }
  }
}

/// The next kWide bytes as integers.
template <class Byte>
WideInt load_bytes(const std::byte* from) {
  using Bytes [[gnu::vector_size(kWide)]] = Byte;
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
#if defined(__AVX512F__)
  const auto words = reinterpret_cast<__m128i>(bytes);
  return reinterpret_cast<WideInt>(std::is_signed_v<Byte> ? _mm512_cvtepi8_epi32(words)
                                                          : _mm512_cvtepu8_epi32(words));
#elif defined(__AVX2__) && defined(__FMA__)
  const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&bytes));
  return reinterpret_cast<WideInt>(std::is_signed_v<Byte> ? _mm256_cvtepi8_epi32(words)
                                                          : _mm256_cvtepu8_epi32(words));
#else
  return __builtin_convertvector(bytes, WideInt);
#endif
}

/// Exact for what bytes hold.
inline Wide floats_of(WideInt integers) {
  return __builtin_convertvector(integers, Wide);
}

/// The sixteen floats that four bits stand for, `least` and the next ones.
class FloatsOfFourBits {
 public:
  explicit FloatsOfFourBits(std::int32_t least) {
#if defined(__AVX512F__)
    for (std::size_t i = 0; i < kWide; ++i)
      table_[i] = static_cast<float>(least + static_cast<std::int32_t>(i));
#else
    least_ = WideInt{} + least;
#endif
  }
  /// Of the lowest four bits of each lane.
  Wide of(WideInt bits) const {
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(bits), table_);
#else
    return floats_of((bits & 15) + least_);
#endif
  }

 private:
#if defined(__AVX512F__)
  Wide table_;
#else
  WideInt least_;
#endif
};

/// A buffer of floats, aligned to a register. It grows on demand and does not preserve its content.
class WideBuffer {
 public:
  /// At least `count` floats. A pointer from an earlier call stays valid until a larger count is requested.
  float* floats(std::size_t count) {
    if (size_ < count) {
      // Grows by at least half: a context that grows by a few tokens at a time would otherwise leave a hole
      // in the heap for every size. The old buffer is freed first because its content is not needed.
      const std::size_t grown = std::max(count, size_ + size_ / 2);
      size_ = 0;
      lines_.reset();
      lines_ = std::make_unique_for_overwrite<Line[]>((grown + kWide - 1) / kWide);
      size_ = grown;
    }
    return reinterpret_cast<float*>(lines_.get());
  }

 private:
  struct alignas(kWide * sizeof(float)) Line {
    float lanes[kWide];
  };
  std::unique_ptr<Line[]> lines_;
  std::size_t size_ = 0;  // floats
};

/// The sum of the lanes, as a balanced tree. A template, so that folds wider than a register are not
/// compiled.
template <std::size_t n = kWide>
float sum_of(Wide wide) {
  const auto fold = [&]<std::size_t... lane>(auto width, std::index_sequence<lane...>) {
    constexpr std::size_t w = decltype(width)::value;
    wide += __builtin_shufflevector(wide, wide, (lane < w ? lane + w : lane)...);
  };
  constexpr auto kEach = std::make_index_sequence<kWide>{};
  if constexpr (n > 8) fold(std::integral_constant<std::size_t, 8>{}, kEach);
  if constexpr (n > 4) fold(std::integral_constant<std::size_t, 4>{}, kEach);
  fold(std::integral_constant<std::size_t, 2>{}, kEach);
  fold(std::integral_constant<std::size_t, 1>{}, kEach);
  return wide[0];
}

/// Sixteen sums beside each other, in as many registers as that takes.
struct SixteenSums {
  static constexpr std::size_t kLanes = 16, kParts = kLanes / kWide;

  /// Adds the products of the next kLanes numbers of each.
  template <Elem elem = Elem::f32>
  void add_products(const std::byte* a, const float* b) {
#pragma GCC unroll 4
    for (std::size_t part = 0; part < kParts; ++part)
      parts[part] = multiply_add(load_stored<elem>(a + part * kWide * elem_bytes(elem)),
                                 load(b + part * kWide), parts[part]);
  }
  void add_products(const float* a, const float* b) {
    add_products(reinterpret_cast<const std::byte*>(a), b);
  }
  /// Of all sums, as a balanced tree.
  float total() const {
    Wide folded[kParts];
    std::copy_n(parts, kParts, folded);
    for (std::size_t n = kParts / 2; n > 0; n /= 2)
      for (std::size_t part = 0; part < n; ++part) folded[part] += folded[part + n];
    return sum_of(folded[0]);
  }

  Wide parts[kParts] = {};
};

/// e^x to about 1 ulp; 0 below -87.3 (where floats become subnormal), e^88.3 above 88.3, NaN for NaN.
inline Wide exp_of(Wide x) {
  constexpr float kLargest = 88.3F, kLeast = -87.3F;
  const Wide in_range = x > kLargest ? all_of(kLargest) : x < kLeast ? all_of(kLeast) : x;
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 x 2^23 rounds to an integer in the last bits.
  constexpr float kRound = 0x1.8p23F;
  const Wide shifted = multiply_add(in_range, all_of(0x1.715476p0F), all_of(kRound));
  const Wide n = shifted - kRound;
  Wide r = multiply_add(n, all_of(-0x1.62e4p-1F), in_range);  // ln 2, its first 14 bits and the rest
  r = multiply_add(n, all_of(-0x1.7f7d1cp-20F), r);
  // Taylor's series to r^7 / 7!: the next term is below 2^-28.
  Wide series = all_of(1.0F / 5040);
  for (const float coefficient : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    series = multiply_add(series, r, all_of(coefficient));
  const WideInt power = (reinterpret_cast<WideInt>(shifted) << 23) + (127 << 23);
  const Wide result = series * reinterpret_cast<Wide>(power);
  return x < kLeast ? Wide{} : result;
}

/// tanh x to about 1e-7 of it: where it is small by Taylor's series to x^9, else from e^2x.
inline Wide tanh_of(Wide x) {
  const Wide square = x * x;
  Wide series = all_of(62.0F / 2835);
  for (const float coefficient : {-17.0F / 315, 2.0F / 15, -1.0F / 3, 1.0F})
    series = multiply_add(series, square, all_of(coefficient));
  return square < 0.0625F ? series * x : 1.0F - 2.0F / (exp_of(2.0F * x) + 1.0F);
}

/// Transposes a square of kWide x kWide stored elements into floats: to[j][i] = from[i][j]; strides are
/// elements between rows. A template of n, so that steps wider than the square are not compiled.
template <Elem elem, std::size_t n = kWide>
void transpose_stored(const std::byte* from, std::size_t from_stride, float* to, std::size_t to_stride) {
  std::array<Wide, kWide> rows;
  for (std::size_t i = 0; i < kWide; ++i)
    rows[i] = load_stored<elem>(from + i * from_stride * elem_bytes(elem));
  // Swaps the off-diagonal quarters of every 2s x 2s square, for s = 1, 2, 4, ...
  const auto swap_quarters = [&]<std::size_t... lane>(auto step, std::index_sequence<lane...>) {
    constexpr std::size_t s = decltype(step)::value;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kWide; ++i) {
      if ((i & s) != 0) continue;
      const Wide above = rows[i], below = rows[i + s];
      rows[i] = __builtin_shufflevector(above, below, ((lane & s) == 0 ? lane : kWide + lane - s)...);
      rows[i + s] = __builtin_shufflevector(above, below, ((lane & s) == 0 ? lane + s : kWide + lane)...);
    }
  };
  constexpr auto kEach = std::make_index_sequence<kWide>{};
  swap_quarters(std::integral_constant<std::size_t, 1>{}, kEach);
  swap_quarters(std::integral_constant<std::size_t, 2>{}, kEach);
  if constexpr (n > 4) swap_quarters(std::integral_constant<std::size_t, 4>{}, kEach);
  if constexpr (n > 8) swap_quarters(std::integral_constant<std::size_t, 8>{}, kEach);
  for (std::size_t i = 0; i < kWide; ++i) store(rows[i], to + i * to_stride);
}

inline void transpose(const float* from, std::size_t from_stride, float* to, std::size_t to_stride) {
  transpose_stored<Elem::f32>(reinterpret_cast<const std::byte*>(from), from_stride, to, to_stride);
}

/// Adds A B to `sums`, `kRows` x `kVectors` vectors that stay in registers. A's element (i, k) lies at a[i *
/// row_step + k * depth_step], B's row k is kVectors * kWide stored elements, k * b_step elements from b on.
template <Elem elem, std::size_t kAheadBytes = 0, std::size_t kRows, std::size_t kVectors>
[[gnu::always_inline]] inline void add_product_stored(const float* a, std::size_t row_step,
                                                      std::size_t depth_step, const std::byte* b,
                                                      std::size_t b_step, std::size_t depth,
                                                      Wide (&sums)[kRows][kVectors]) {
  constexpr std::size_t kOne = kWide * elem_bytes(elem);
  for (std::size_t k = 0; k < depth; ++k) {
    Wide right[kVectors];
    const std::byte* row = b + k * b_step * elem_bytes(elem);
#pragma GCC unroll 8
    for (std::size_t v = 0; v < kVectors; ++v) {
      if (kAheadBytes > 0 && v * kOne % 64 == 0) __builtin_prefetch(row + kAheadBytes + v * kOne);
      right[v] = load_stored<elem>(row + v * kOne);
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
      const Wide left = all_of(a[i * row_step + k * depth_step]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) sums[i][v] = multiply_add(left, right[v], sums[i][v]);
    }
  }
}

/// The same of floats.
template <std::size_t kRows, std::size_t kVectors>
[[gnu::always_inline]] inline void add_product(const float* a, std::size_t row_step, std::size_t depth_step,
                                               const float* b, std::size_t b_step, std::size_t depth,
                                               Wide (&sums)[kRows][kVectors]) {
  add_product_stored<Elem::f32>(a, row_step, depth_step, reinterpret_cast<const std::byte*>(b), b_step, depth,
                                sums);
}

}  // namespace kvsim::model::cpu
