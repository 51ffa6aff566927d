#include <cmath>

#include "analysis/results/metrics/families.hpp"
#include "analysis/results/metrics/over_lanes.hpp"

namespace kvsim::analysis {
namespace {

/// Sum of `part` over sum of importance: with w the mean over a layer's query heads, XKV's R_i for a set
/// chosen per lane. Undefined where nothing has importance.
template <double sim::LaneOutcome::*part>
Value retention(const Measured& of) {
  return ratio(sum(of, part), sum(of, &sim::LaneOutcome::importance));
}

/// R / log2 n with n the mean number of kept candidates per lane; log2 is zero or negative up to n = 1.
Value retention_per_bit(const Measured& of) {
  const std::optional<double> r = number(retention<&sim::LaneOutcome::importance_kept>(of));
  const double n = mean(of, &sim::LaneOutcome::kept_candidates);
  if (!r || n <= 1) return {};
  return *r / std::log2(n);
}

}  // namespace

std::vector<Metric> importance_metrics() {
  return {
      {.key = "r",
       .unit = "share",
       .meaning = "importance retained by the policy (scope all: R_avg)",
       .formula = "sum of w_j over j in S / sum of w_j over all M candidates",
       .label = "importance retained",
       .better = Better::higher,
       .percent = true,
       .measure = retention<&sim::LaneOutcome::importance_kept>,
       .console = {.heading = "r"}},
      {.key = "r_oracle",
       .unit = "share",
       .meaning = "importance the best set of the same size retains, at this policy's own split",
       .formula = "r with the n largest w_j in place of S, n being the policy's own",
       .label = "importance the best set retains at this policy's own split",
       .percent = true,
       .measure = retention<&sim::LaneOutcome::importance_oracle>,
       .console = {.heading = "r oracle own split"}},
      {.key = "isr",
       .unit = "share per bit",
       .meaning = "r / log2(kept tokens that have an importance)",
       .formula = "r / log2 n, null for n <= 1; r is a share (XKV prints percent per bit)",
       .label = "importance retained per bit",
       .better = Better::higher,
       .percent = true,
       .measure = retention_per_bit,
       .console = {.heading = "isr"}},
  };
}

}  // namespace kvsim::analysis
