#pragma once
/// What the largest entries of an importance vector retain, and how that grows with their number (XKV, arXiv
/// 2412.05896, eq. 9 and 10).
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kvsim::analysis {

class RetentionCurve {
 public:
  /// Entries are finite and not negative.
  explicit RetentionCurve(std::span<const double> w);

  /// How many entries w has: the range of n.
  std::size_t size() const { return sums_.size() - 1; }
  /// R(n) = the n largest entries / all of them, n from 0 to size(). Nothing if they sum to zero, as below.
  std::optional<double> retained(std::size_t n) const;
  /// ISR(n) = R(n) / log2 n; nothing for n <= 1.
  std::optional<double> per_bit(std::size_t n) const;
  /// f(n) = ISR(n) - ISR(n - 1); nothing for n <= 2.
  std::optional<double> slope(std::size_t n) const;

  /// The smallest n with R(n) >= share, a share from 0 to 1. Sums that differ by rounding alone are equal.
  std::optional<std::size_t> size_for(double share) const;
  /// The largest n with f(n) >= least. f is neither monotone nor of one sign, so there may be several
  /// crossings, of which this is the last, or none: nothing.
  std::optional<std::size_t> last_slope(double least) const;

 private:
  std::vector<double> sums_;  ///< [n]: of the n largest
};

}  // namespace kvsim::analysis
