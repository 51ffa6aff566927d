#pragma once
/// Which policies and budgets fit: the largest budget and the largest batch within limits of memory and time.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "analysis/cost/cost_study.hpp"

namespace kvsim::analysis {

struct CostLimits {
  std::uint64_t memory = 0;                          ///< bytes per device; the host's are its own
  std::optional<double> first_token{}, per_token{};  ///< s

  /// The first of "memory", "ttft" and "tpot" that an estimate exceeds; empty: it keeps to all of them.
  std::string exceeded_by(const cost::Estimate& estimate) const;
};

/// A policy at a budget under limits.
struct CostFit {
  CostRow row{};          ///< its largest_batch keeps to all limits
  bool own_size = false;  ///< the policy has a size of its own. Not a key
  bool meets = false;
  /// What is exceeded: at this budget if it does not meet them; else, when the budget was looked for, by one
  /// token more. Empty: nothing.
  std::string limit{};
  std::optional<double> largest_batch_tokens_per_second{};  ///< nothing: not one sequence fits
};

/// Every policy at every budget; without budgets at the largest that meets the limits, found by bisection (it
/// meets them, one token more does not), or at its least if none does. Of the study's first workload. Throws
/// Error(usage) when a policy can be at none of its budgets: unlike in a sweep none is left out.
std::vector<CostFit> cost_fits(const CostStudy& study, const CostLimits& limits);

Records fit_records(const std::vector<CostFit>& fits);
/// `head` above it, `notes` below.
void write_fit_table(std::ostream& out, const std::vector<std::string>& head,
                     const std::vector<CostFit>& fits, const std::vector<std::string>& notes);

}  // namespace kvsim::analysis
