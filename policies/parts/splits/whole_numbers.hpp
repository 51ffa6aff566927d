#pragma once
/// Rounds the real numbers of a formula to whole budgets.
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kvsim::policy {

/// Returns whole numbers near `ideal` (each >= 0) that sum to `total`: floors, then one more where the
/// remainder is largest (the earlier first among equals). `total` is the sum of `ideal` up to rounding.
std::vector<std::size_t> largest_remainder(std::span<const double> ideal, std::size_t total);

/// The most that each may get: one number for all, or a number each.
class Most {
 public:
  Most(std::size_t all) : all_(all) {}                             // NOLINT(google-explicit-constructor)
  Most(std::vector<std::size_t> each) : each_(std::move(each)) {}  // NOLINT(google-explicit-constructor)
  std::size_t operator[](std::size_t i) const { return each_.empty() ? all_ : each_[i]; }

 private:
  std::size_t all_ = 0;
  std::vector<std::size_t> each_{};
};

/// Splits `total` in proportion to `weights`, none getting more than its most: by largest remainder, after
/// which anything above goes evenly to those with room. Equal weights when none is positive. Weights are
/// finite and >= 0; all together have room for `total`. Error(bug) otherwise.
std::vector<std::size_t> shared_out(std::span<const double> weights, std::size_t total, const Most& most);

/// Adds `rest` to `n`, one by one in turn from the first on, none beyond its most. Throws Error(bug) if there
/// is no room.
void spread(std::span<std::size_t> n, std::size_t rest, const Most& most);

/// Returns the nearest whole number, halves to the even one, as Python and PyTorch round; 0 for negative x.
std::size_t half_even(double x);

}  // namespace kvsim::policy
