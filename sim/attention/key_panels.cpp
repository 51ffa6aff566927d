#include "sim/attention/key_panels.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace kvsim::sim {
namespace {

constexpr std::size_t kWidth = KeyPanels::kWidth;

bool is_bf16(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0xffffU) == 0;
}

bool are_bf16(MatrixView numbers) {
  for (std::size_t row = 0; row < numbers.rows; ++row)
    if (!std::ranges::all_of(numbers.row(row), is_bf16)) return false;
  return true;
}

std::uint32_t pair_of(float even, float odd) {
  return std::bit_cast<std::uint32_t>(even) >> 16 | (std::bit_cast<std::uint32_t>(odd) & 0xffff0000U);
}

/// Queries as the kernels read them: [row][pair] of bf16 numbers, or [row][pair][2], odd component first.
struct Queries {
  std::size_t rows = 0, pairs = 0;
  const std::uint32_t* halves = nullptr;
  const float* floats = nullptr;
};

/// Where the products of the first row with the first key of a tile go, and how.
struct Target {
  float* out;
  std::size_t stride;
  float scale;
};

// A kernel computes a tile: R rows by P panels of keys. `K` is the type of the numbers of a panel: pairs of
// bf16 numbers, or floats.

/// A tile as the compiler makes it.
struct PlainKernel {
  static constexpr std::size_t kRows = 4, kPanels = 1;

  template <std::size_t R, std::size_t P, class K>
  static void tile(const Queries& queries, std::size_t row, const K* panel, const Target& to) {
    static_assert(P == 1);
    const float* const q = queries.floats + row * queries.pairs * 2;
    float sums[R][kWidth] = {};
    for (std::size_t pair = 0; pair < queries.pairs; ++pair) {
      float odd[kWidth], even[kWidth];
      for (std::size_t j = 0; j < kWidth; ++j) {
        if constexpr (std::is_same_v<K, float>) {
          odd[j] = panel[pair * 2 * kWidth + j];
          even[j] = panel[(pair * 2 + 1) * kWidth + j];
        } else {
          odd[j] = std::bit_cast<float>(panel[pair * kWidth + j] & 0xffff0000U);
          even[j] = std::bit_cast<float>(panel[pair * kWidth + j] << 16);
        }
      }
      for (std::size_t r = 0; r < R; ++r) {
        // volatile: GCC 12 would read vectors of them, past the end of the last row.
        const volatile float* const both = q + (r * queries.pairs + pair) * 2;
        const float first = both[0], second = both[1];
        for (std::size_t j = 0; j < kWidth; ++j)
          sums[r][j] = fused(second, even[j], fused(first, odd[j], sums[r][j]));
      }
    }
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t j = 0; j < kWidth; ++j) to.out[r * to.stride + j] = to.scale * sums[r][j];
  }
};

#ifdef __x86_64__

struct WideKernel {
  static constexpr std::size_t kRows = 8, kPanels = 3;

  template <std::size_t R, std::size_t P, class K>
  [[gnu::target("avx512f")]] static void tile(const Queries& queries, std::size_t row, const K* panel,
                                              const Target& to) {
    const std::size_t panel_size = queries.pairs * kWidth * (std::is_same_v<K, float> ? 2 : 1);
    const float* const q = queries.floats + row * queries.pairs * 2;
    __m512 sums[R][P];
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t p = 0; p < P; ++p) sums[r][p] = _mm512_setzero_ps();
    for (std::size_t pair = 0; pair < queries.pairs; ++pair)
      for (std::size_t half = 0; half < 2; ++half) {
        __m512 keys[P];
        for (std::size_t p = 0; p < P; ++p) {
          if constexpr (std::is_same_v<K, float>) {
            keys[p] = _mm512_loadu_ps(panel + p * panel_size + (pair * 2 + half) * kWidth);
          } else {
            const __m512i both = _mm512_loadu_si512(panel + p * panel_size + pair * kWidth);
            keys[p] = _mm512_castsi512_ps(half == 0 ? _mm512_and_si512(both, _mm512_set1_epi32(-0x10000))
                                                    : _mm512_slli_epi32(both, 16));
          }
        }
        for (std::size_t r = 0; r < R; ++r) {
          const __m512 component = _mm512_set1_ps(q[(r * queries.pairs + pair) * 2 + half]);
          for (std::size_t p = 0; p < P; ++p) sums[r][p] = _mm512_fmadd_ps(component, keys[p], sums[r][p]);
        }
      }
    const __m512 scale = _mm512_set1_ps(to.scale);
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t p = 0; p < P; ++p)
        _mm512_storeu_ps(to.out + r * to.stride + p * kWidth, _mm512_mul_ps(scale, sums[r][p]));
  }
};

struct PairsKernel {
  static constexpr std::size_t kRows = 8, kPanels = 3;

  template <std::size_t R, std::size_t P, class K>
  [[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] static void tile(const Queries& queries,
                                                                           std::size_t row, const K* panel,
                                                                           const Target& to) {
    const std::size_t panel_size = queries.pairs * kWidth;
    const std::uint32_t* const q = queries.halves + row * queries.pairs;
    __m512 sums[R][P];
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t p = 0; p < P; ++p) sums[r][p] = _mm512_setzero_ps();
    for (std::size_t pair = 0; pair < queries.pairs; ++pair) {
      __m512i keys[P];
      for (std::size_t p = 0; p < P; ++p)
        keys[p] = _mm512_loadu_si512(panel + p * panel_size + pair * kWidth);
      for (std::size_t r = 0; r < R; ++r) {
        const __m512i both = _mm512_set1_epi32(static_cast<int>(q[r * queries.pairs + pair]));
        for (std::size_t p = 0; p < P; ++p)
          sums[r][p] = _mm512_dpbf16_ps(sums[r][p], (__m512bh)both, (__m512bh)keys[p]);
      }
    }
    const __m512 scale = _mm512_set1_ps(to.scale);
    for (std::size_t r = 0; r < R; ++r)
      for (std::size_t p = 0; p < P; ++p)
        _mm512_storeu_ps(to.out + r * to.stride + p * kWidth, _mm512_mul_ps(scale, sums[r][p]));
  }
};

#endif

/// The rows from `row` on with P panels, R at a time as long as there are so many, then half as many.
template <class Kernel, std::size_t R, std::size_t P, class K>
void all_rows(const Queries& queries, std::size_t row, const K* panel, const Target& to) {
  for (; row + R <= queries.rows; row += R)
    Kernel::template tile<R, P>(queries, row, panel, {to.out + row * to.stride, to.stride, to.scale});
  if constexpr (R > 1) {
    if (row < queries.rows) all_rows<Kernel, R / 2, P>(queries, row, panel, to);
  }
}

/// All rows with the keys of [first, end). `panels`: of all keys.
template <class Kernel, class K>
void all_panels(const Queries& queries, const K* panels, std::size_t first, std::size_t end,
                const Target& to) {
  constexpr std::size_t kAtOnce = Kernel::kPanels;
  const std::size_t panel_size = queries.pairs * kWidth * (std::is_same_v<K, float> ? 2 : 1);
  std::vector<float> edge;
  for (std::size_t key = first / kWidth * kWidth; key < end;) {
    const K* const panel = panels + key / kWidth * panel_size;
    const std::size_t begin = std::max(first, key), stop = std::min(end, key + kWidth);
    if (begin != key || stop != key + kWidth) {  // a panel of which only some keys are asked for
      edge.resize(queries.rows * kWidth);
      all_rows<Kernel, Kernel::kRows, 1>(queries, 0, panel, {edge.data(), kWidth, to.scale});
      for (std::size_t row = 0; row < queries.rows; ++row)
        std::copy(edge.begin() + static_cast<std::ptrdiff_t>(row * kWidth + begin - key),
                  edge.begin() + static_cast<std::ptrdiff_t>(row * kWidth + stop - key),
                  to.out + row * to.stride + begin);
      key += kWidth;
      continue;
    }
    const Target here{to.out + key, to.stride, to.scale};
    if (key + kAtOnce * kWidth <= end) {
      all_rows<Kernel, Kernel::kRows, kAtOnce>(queries, 0, panel, here);
      key += kAtOnce * kWidth;
    } else {
      all_rows<Kernel, Kernel::kRows, 1>(queries, 0, panel, here);
      key += kWidth;
    }
  }
}

}  // namespace

KeyPanels::KeyPanels(MatrixView keys) : size_(keys.rows), dim_(keys.cols), pairs_((keys.cols + 1) / 2) {
  const std::size_t panels = (size_ + kWidth - 1) / kWidth;
  const bool narrow = are_bf16(keys);
  if (narrow)
    halves_.resize(panels * pairs_ * kWidth);
  else
    floats_.resize(panels * pairs_ * 2 * kWidth);
  for (std::size_t row = 0; row < size_; ++row) {
    const std::span<const float> key = keys.row(row);
    for (std::size_t pair = 0; pair < pairs_; ++pair) {
      const float even = key[2 * pair], odd = 2 * pair + 1 < dim_ ? key[2 * pair + 1] : 0;
      const std::size_t at = row / kWidth * pairs_ + pair, column = row % kWidth;
      if (narrow) {
        halves_[at * kWidth + column] = pair_of(even, odd);
      } else {
        floats_[at * 2 * kWidth + column] = odd;
        floats_[(at * 2 + 1) * kWidth + column] = even;
      }
    }
  }
}

std::uint64_t KeyPanels::bytes(std::uint64_t n, std::uint64_t dim, bool are_bf16) {
  return (n + kWidth - 1) / kWidth * kWidth * ((dim + 1) / 2) * (are_bf16 ? 4 : 8);
}

void KeyPanels::products(MatrixView queries, float scale, std::size_t first, std::size_t end, float* out,
                         std::size_t stride) const {
  static const ProductPath best =
      path_available(ProductPath::pairs) ? ProductPath::pairs : fastest_of_floats();
  products(best, queries, scale, first, end, out, stride);
}

void KeyPanels::products(ProductPath path, MatrixView queries, float scale, std::size_t first,
                         std::size_t end, float* out, std::size_t stride) const {
  if (first >= end || queries.rows == 0) return;
  const bool narrow = !halves_.empty();
  if (path == ProductPath::pairs && !(narrow && are_bf16(queries))) path = ProductPath::wide;
  // Kept from one product to the next.
  thread_local std::vector<std::uint32_t> halves;
  thread_local std::vector<float> floats;
  if (path == ProductPath::pairs)
    halves.resize(queries.rows * pairs_);
  else
    floats.resize(queries.rows * pairs_ * 2);
  for (std::size_t row = 0; row < queries.rows; ++row) {
    const std::span<const float> query = queries.row(row);
    for (std::size_t pair = 0; pair < pairs_; ++pair) {
      const float even = query[2 * pair], odd = 2 * pair + 1 < dim_ ? query[2 * pair + 1] : 0;
      const std::size_t at = row * pairs_ + pair;
      if (path == ProductPath::pairs) {
        halves[at] = pair_of(even, odd);
      } else {
        floats[2 * at] = odd;
        floats[2 * at + 1] = even;
      }
    }
  }
  const Queries rearranged{queries.rows, pairs_, halves.data(), floats.data()};
  const Target to{out, stride, scale};
  const SubnormalsAreZero while_it_multiplies;
  const auto by = [&]<class Kernel>(Kernel) {
    if (narrow)
      all_panels<Kernel>(rearranged, halves_.data(), first, end, to);
    else
      all_panels<Kernel>(rearranged, floats_.data(), first, end, to);
  };
#ifdef __x86_64__
  if (path == ProductPath::pairs) return all_panels<PairsKernel>(rearranged, halves_.data(), first, end, to);
  if (path == ProductPath::wide) return by(WideKernel());
#endif
  by(PlainKernel());
}

}  // namespace kvsim::sim
