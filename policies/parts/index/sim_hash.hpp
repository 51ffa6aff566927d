#pragma once
/// SimHash (Charikar, Similarity estimation techniques from rounding algorithms, STOC 2002): a bit per random
/// hyperplane. Two vectors disagree in a bit with probability angle / pi, so Hamming distances between codes
/// estimate angles.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvsim::policy {

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

}  // namespace kvsim::policy
