#pragma once
/// One row of bits per token or block, packed into words, which KVCrush (arXiv 2503.00022) compares instead
/// of keys. A distance takes a few exclusive-ors and population counts.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/api/eviction.hpp"
#include "policies/api/score_policy.hpp"

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

// SimHash (Charikar, Similarity estimation techniques from rounding algorithms, STOC 2002): a bit per random
// hyperplane. Two vectors disagree in a bit with probability angle / pi, so Hamming distances between codes
// estimate angles.

/// The most bits of a code: it fits one word.
inline constexpr std::size_t kMaxHashBits = 64;

class SimHash {
 public:
  /// Bit b of a code tells on which side of the hyperplane with normal r_b a vector lies: r_b . x >= 0, so
  /// zero maps to 1. r_b(c) are independent standard normal draws of (key, b, c), so the first bits of a
  /// longer code are those of a shorter one. `bits` in [1, kMaxHashBits].
  SimHash(std::size_t bits, std::size_t dim, std::uint64_t key);

  std::size_t bits() const { return bits_; }
  /// Returns the code of a vector of `dim` components, bit b in bit b of the word.
  std::uint64_t operator()(std::span<const float> x) const;

 private:
  std::size_t bits_;
  std::vector<double> normals_;  ///< [dim, bits]: this order lets the loop over bits vectorise
};

// Finds the code that is farthest from a query: the scan over a cache that hashing policies run at every
// step.

/// Codes to compare with: a single one, or one per query head. Distances from several are added (Group::mean;
/// the sum ranks like the mean), or the nearest decides (Group::max, of similarity).
struct HashedQuery {
  std::span<const std::uint64_t> codes;  ///< at least one
  Group group = Group::mean;
};

/// Slots whose position lies in [first, last) may be chosen.
struct Choosable {
  Position first = 0, last = 0;
};

/// Returns the slot with the largest Hamming distance among those that may be chosen; `tie` decides among
/// equals. Returns codes.size() if none may be chosen. `codes` and `positions` hold one entry per slot;
/// positions are distinct and >= 0; there are fewer than 2^31 slots. One pass over memory, 12 bytes per slot.
std::size_t farthest(std::span<const std::uint64_t> codes, std::span<const Position> positions,
                     const HashedQuery& query, Choosable choosable, Tie tie);

}  // namespace kvsim::policy
