#pragma once
/// One row of bits per token or block, packed into words, which KVCrush (arXiv 2503.00022) compares instead
/// of keys. A distance takes a few exclusive-ors and population counts.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvsim::policy {

class Fingerprints {
 public:
  using Bits = std::vector<std::uint64_t>;  ///< n_bits bits; bit 0 is the lowest of the first word

  Fingerprints(std::size_t n_items, std::size_t n_bits)
      : n_bits_(n_bits), width_((n_bits + 63) / 64), words_(n_items * width_) {}

  std::size_t n_bits() const { return n_bits_; }
  void set(std::size_t item, std::size_t bit) {
    words_[item * width_ + bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  bool get(std::size_t item, std::size_t bit) const {
    return (words_[item * width_ + bit / 64] >> (bit % 64) & 1) != 0;
  }

  /// Returns how many bits differ.
  std::size_t distance(std::size_t item, const Bits& anchor) const {
    std::size_t out = 0;
    for (std::size_t w = 0; w < width_; ++w)
      out += static_cast<std::size_t>(std::popcount(words_[item * width_ + w] ^ anchor[w]));
    return out;
  }

  /// Returns `items` sorted by (distance to the anchor, place in `items`).
  std::vector<std::uint32_t> nearest_first(std::span<const std::uint32_t> items, const Bits& anchor) const;

  /// Returns the bits that more than half of `items` have; exactly half gives 0.
  Bits majority(std::span<const std::uint32_t> items) const;

 private:
  std::size_t n_bits_, width_;
  std::vector<std::uint64_t> words_;
};

/// Packs `n_bits` bits; bit i is bit_at(i).
template <class BitAt>
Fingerprints::Bits make_bits(std::size_t n_bits, BitAt bit_at) {
  Fingerprints::Bits out((n_bits + 63) / 64);
  for (std::size_t i = 0; i < n_bits; ++i)
    if (bit_at(i)) out[i / 64] |= std::uint64_t{1} << (i % 64);
  return out;
}

}  // namespace kvsim::policy
