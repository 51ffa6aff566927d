#include "sim/attention/outer_products.hpp"

#include <algorithm>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace kvsim::sim {
namespace {

constexpr std::size_t kOuterRows = 8, kColumns = 16;  // of the least part of `out` that is computed at once
/// So many vectors stay in the CPU cache while all of `out` is gone through.
constexpr std::size_t kChunk = 128;

constexpr std::size_t padded(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

/// Copies vectors side by side, `Width` numbers at a time, as the kernels read them: [part][vector][Width].
/// Read where they are, they would push each other out of the cache: they often lie a power of two apart.
template <std::size_t Width>
void pack(std::span<const float* const> vectors, std::size_t size, float* to) {
  std::size_t first = 0;
  for (; first + Width <= size; first += Width)
    for (const float* vector : vectors) to = std::copy_n(vector + first, Width, to);
  if (first == size) return;
  for (const float* vector : vectors) {
    float* const end = std::copy(vector + first, vector + size, to);
    to += Width;
    std::fill(end, to, 0.0F);
  }
}

// A kernel adds to kOuterRows rows by P panels of kColumns columns of the sums. `a`: [n][kOuterRows], `b`:
// [P][n][kColumns].

struct PlainOuterKernel {
  static constexpr std::size_t kMostPanels = 1;

  template <std::size_t P>
  static void tile(const float* a, const float* b, std::size_t n, float* out, std::size_t stride) {
    static_assert(P == 1);
    constexpr std::size_t kHalf = kOuterRows / 2;  // as many registers as AVX2 has
    for (std::size_t first = 0; first < kOuterRows; first += kHalf) {
      float sums[kHalf][kColumns];
      for (std::size_t r = 0; r < kHalf; ++r) std::copy_n(out + (first + r) * stride, kColumns, sums[r]);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t r = 0; r < kHalf; ++r)
          for (std::size_t c = 0; c < kColumns; ++c)
            sums[r][c] = fused(a[i * kOuterRows + first + r], b[i * kColumns + c], sums[r][c]);
      for (std::size_t r = 0; r < kHalf; ++r) std::copy_n(sums[r], kColumns, out + (first + r) * stride);
    }
  }
};

#ifdef __x86_64__

struct WideOuterKernel {
  static constexpr std::size_t kMostPanels = 3;

  template <std::size_t P>
  [[gnu::target("avx512f")]] static void tile(const float* a, const float* b, std::size_t n, float* out,
                                              std::size_t stride) {
    __m512 sums[kOuterRows][P];
    for (std::size_t r = 0; r < kOuterRows; ++r)
      for (std::size_t p = 0; p < P; ++p) sums[r][p] = _mm512_loadu_ps(out + r * stride + p * kColumns);
    for (std::size_t i = 0; i < n; ++i) {
      __m512 vectors[P];
      for (std::size_t p = 0; p < P; ++p) vectors[p] = _mm512_loadu_ps(b + (p * n + i) * kColumns);
      for (std::size_t r = 0; r < kOuterRows; ++r) {
        const __m512 factor = _mm512_set1_ps(a[i * kOuterRows + r]);
        for (std::size_t p = 0; p < P; ++p) sums[r][p] = _mm512_fmadd_ps(factor, vectors[p], sums[r][p]);
      }
    }
    for (std::size_t r = 0; r < kOuterRows; ++r)
      for (std::size_t p = 0; p < P; ++p) _mm512_storeu_ps(out + r * stride + p * kColumns, sums[r][p]);
  }
};

#endif

/// Adds the products of n packed vectors to the padded sums.
template <class Kernel>
void add_products(const float* a, std::size_t rows, const float* b, std::size_t cols, std::size_t n,
                  float* sums) {
  const auto add_panels = [&]<std::size_t P>(std::size_t col) {
    for (std::size_t row = 0; row < rows; row += kOuterRows)
      Kernel::template tile<P>(a + row * n, b + col * n, n, sums + row * cols + col, cols);
    return P * kColumns;
  };
  for (std::size_t col = 0; col < cols;) {
    const std::size_t left = std::min((cols - col) / kColumns, Kernel::kMostPanels);
    if constexpr (Kernel::kMostPanels >= 3) {
      if (left == 3 && cols - col != 4 * kColumns) {  // two and two are faster than three and one
        col += add_panels.template operator()<3>(col);
        continue;
      }
      if (left >= 2) {
        col += add_panels.template operator()<2>(col);
        continue;
      }
    }
    col += add_panels.template operator()<1>(col);
  }
}

}  // namespace

void sum_outer_products(std::span<const float* const> a, std::size_t n_rows, std::span<const float* const> b,
                        std::size_t n_cols, float* out, [[maybe_unused]] ProductPath path) {
  const std::size_t rows = padded(n_rows, kOuterRows), cols = padded(n_cols, kColumns);
  // Kept from one call to the next.
  thread_local std::vector<float> sums, packed_a, packed_b;
  sums.assign(rows * cols, 0.0F);
  packed_a.resize(kChunk * rows);
  packed_b.resize(kChunk * cols);
  const SubnormalsAreZero while_it_multiplies;
  for (std::size_t first = 0; first < a.size(); first += kChunk) {
    const std::size_t n = std::min(kChunk, a.size() - first);
    pack<kOuterRows>(a.subspan(first, n), n_rows, packed_a.data());
    pack<kColumns>(b.subspan(first, n), n_cols, packed_b.data());
#ifdef __x86_64__
    if (path != ProductPath::plain) {
      add_products<WideOuterKernel>(packed_a.data(), rows, packed_b.data(), cols, n, sums.data());
      continue;
    }
#endif
    add_products<PlainOuterKernel>(packed_a.data(), rows, packed_b.data(), cols, n, sums.data());
  }
  for (std::size_t row = 0; row < n_rows; ++row)
    std::copy_n(sums.data() + row * cols, n_cols, out + row * n_cols);
}

}  // namespace kvsim::sim
