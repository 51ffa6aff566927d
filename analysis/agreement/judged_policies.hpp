#pragma once
/// Policies as one measure of either loop judges them: means over items, and those of resampled items.
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/statistics/resamples.hpp"

namespace kvsim::analysis {

/// One judge of the policies that are compared: larger is better, whatever the measure's direction.
struct Judged {
  std::vector<double> means;      ///< one per policy
  std::vector<double> resampled;  ///< [resample][policy]; empty: too few items for intervals

  std::span<const double> resample(std::size_t r) const {
    return std::span(resampled).subspan(r * means.size(), means.size());
  }
};

/// Which policies and items two measures are compared on.
struct Shared {
  std::vector<std::size_t> policies;
  TraceSet items;

  auto operator<=>(const Shared&) const = default;
};

/// An estimate with the interval of its resamples; nothing: undefined.
struct Estimated {
  std::optional<double> value{}, low{}, high{};
};

class JudgedPolicies {
 public:
  JudgedPolicies(const LoopsAtCut& loops, std::uint64_t resamples, std::uint64_t seed, double confidence);

  /// The items of a workload; `half` 0 or 1: every other one of them in the order of their names, beginning
  /// with the first or the second.
  TraceSet items_of(const std::string& workload, std::optional<std::size_t> half = {}) const;
  /// Policies that ran on all items of a workload.
  std::vector<std::size_t> ran_on_all(const std::string& workload, std::size_t budget) const;
  /// Of `policies` those that have both measures on some item of the set; the items where all of those do.
  Shared shared(std::size_t open, std::size_t closed, std::size_t budget,
                const std::vector<std::size_t>& policies, const TraceSet& set) const;

  const Judged& by_open(std::size_t measure, std::size_t budget, const Shared& shared);
  const Judged& by_closed(std::size_t measure, std::size_t budget, const Shared& shared);

  /// Kendall's tau-b. Resamples in which all policies are equal to one judge have none and are left out;
  /// there is no interval when they are more than the interval leaves out.
  Estimated tau(const Judged& a, const Judged& b) const;
  /// Pairs of policies whose difference has an interval that excludes 0.
  std::vector<std::pair<std::size_t, std::size_t>> distinguishable(const Judged& judged) const;
  /// Share of `pairs` that both judges put in the same order. A judge to whom a pair is equal has tossed a
  /// coin: half a pair (Harrell's concordance index).
  Estimated same_signs(const Judged& a, const Judged& b,
                       const std::vector<std::pair<std::size_t, std::size_t>>& pairs) const;

 private:
  using Memo = std::map<std::tuple<std::size_t, std::size_t, std::vector<std::size_t>, TraceSet>, Judged>;
  template <class Values>
  const Judged& judged(Memo& memo, std::size_t measure, std::size_t budget, const Shared& shared, double sign,
                       const Values& values);
  Estimated estimate(std::optional<double> value, std::vector<double> samples) const;

  const LoopsAtCut& loops_;
  double confidence_;
  Resamples resamples_;
  Memo open_, closed_;
};

}  // namespace kvsim::analysis
