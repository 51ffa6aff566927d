#pragma once
/// The products of queries with keys that attention rows are made of: most of what a replay computes.
///
/// A product is summed in float, in one order on every processor: from 0, by fused multiply-adds, components
/// 1, 0, 3, 2, 5, 4, ...; numbers and sums below 2^-126 in magnitude are 0. This is the order of the x86
/// instruction VDPBF16PS (Intel, Software Developer's Manual, volume 2), which takes two bf16 numbers at a
/// time. Where queries and keys are bf16 numbers, their products are exact in float, so that with the
/// instruction and without it the bits are the same. Processors without fused multiply-adds round other
/// numbers' products on their own.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/attention/product_path.hpp"
#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

/// Keys of one lane, rearranged for products: panels of 16 keys, component by component. Keys that are all
/// bf16 numbers take 16 bits per number.
class KeyPanels {
 public:
  static constexpr std::size_t kWidth = 16;

  /// `keys`: [n, dim].
  explicit KeyPanels(MatrixView keys);

  std::size_t size() const { return size_; }
  std::size_t dim() const { return dim_; }

  /// Writes out[i * stride + j] = scale * (query i . key j) for the keys j of [first, end), end <= size(),
  /// and nothing else. `queries`: [n, dim].
  void products(MatrixView queries, float scale, std::size_t first, std::size_t end, float* out,
                std::size_t stride) const;
  /// The same on one of the paths. `pairs` goes to the next where a number is not one of bf16.
  void products(ProductPath path, MatrixView queries, float scale, std::size_t first, std::size_t end,
                float* out, std::size_t stride) const;

  /// Bytes of `n` keys.
  static std::uint64_t bytes(std::uint64_t n, std::uint64_t dim, bool are_bf16);

 private:
  std::size_t size_, dim_, pairs_;
  std::vector<std::uint32_t> halves_;  ///< [panel][pair][16]: components 2p and, in the upper half, 2p + 1
  std::vector<float> floats_;          ///< [panel][pair][2][16]: components 2p + 1 and 2p; empty with halves_
};

}  // namespace kvsim::sim
