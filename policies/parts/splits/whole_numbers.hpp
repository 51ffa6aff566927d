#pragma once
/// Whole budgets: rounded from the real numbers of a formula, or chosen greedily among lanes.
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/api/spec.hpp"

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

// Chooses greedily from several lists at once. Each list falls, so taking the largest remaining value again
// and again yields the n largest of the union, which is the best split.

/// Returns how many of the n largest values of all lists each list holds; of equal values those of earlier
/// lists count first. No list counts more than `most` (its largest); the sum is less than n if the lists hold
/// no more. Throws Error(input) for NaN.
std::vector<std::size_t> counts_of_largest(std::span<const std::vector<double>> lists, std::size_t n,
                                           std::size_t most);

// Lets the heads of a layer compete for its budget (Ada-KV, arXiv 2407.11550, Algorithm 1).

/// `gains`: what each further token is worth to each head, falling. Returns how many of the `total` best each
/// head holds, none more than `most`; where the heads have fewer, the rest goes to them in turn.
inline std::vector<std::size_t> best_of_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                              std::size_t most) {
  std::vector<std::size_t> out = counts_of_largest(gains, total, most);
  spread(out, total - std::accumulate(out.begin(), out.end(), std::size_t{0}), most);
  return out;
}
/// The same mixed with an equal share of `total`, of which a part `alpha` counts, to whole numbers by largest
/// remainder.
inline std::vector<std::size_t> competing_heads(std::span<const std::vector<double>> gains, std::size_t total,
                                                std::size_t most, double alpha) {
  const double even = alpha * static_cast<double>(total) / static_cast<double>(gains.size());
  std::vector<double> ideal;
  for (const std::size_t n : best_of_heads(gains, total, most))
    ideal.push_back(static_cast<double>(n) * (1 - alpha) + even);
  return largest_remainder(ideal, total);
}

// Published allocations rarely spend exactly their budget. Each is here once with an exact total and, under
// `variant`, as the paper's formula or a released code computes it.

/// Declares `variant`; `published`: its values besides `exact`, the default.
inline ParamSpec variant_param(const std::vector<std::string>& published) {
  std::vector<std::string> choices = {"exact"};
  choices.insert(choices.end(), published.begin(), published.end());
  return choice_param(
      "variant", "exact", choices,
      "exact: the total is what was asked for; else the published arithmetic, whatever its total");
}
/// PolicySpec::inexact of such allocations: true for every variant but `exact`.
inline bool published_variant(const Params& params) {
  return params.word("variant") != "exact";
}

}  // namespace kvsim::policy
