#pragma once
/// Rows of a replay as people read them.
#include <cstdint>
#include <iosfwd>
#include <map>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// Rows grouped by budget, constant columns named above, `*` at the policy that loses least of those that
/// kept to the budget, notes below. Columns are the metrics with a Console heading. Rows of scope step are
/// one line per cell, with attention loss at the first steps, then ever fewer, and the last. Of several
/// traces, the rows of each budget end with those of means_over_traces.hpp.
void write_console_table(std::ostream& out, const std::vector<Row>& rows);

// Rows of a replay as the table for people has them: steps in one line, the best marked, means over traces.
// The formats for machines have rows of single traces only: whoever groups those by trace, or averages them,
// would count a row of means as one more trace.

/// Rows of scope step folded into one per cell.
struct StepLosses {
  std::vector<Row> rows{};                                 ///< attention loss is its mean over steps
  std::vector<std::map<std::uint64_t, double>> by_step{};  ///< per row; empty: skipped
};
StepLosses step_losses(const std::vector<Row>& rows);

/// All of a few steps; of many 0, 1, 2, 4, ... and the last, because loss grows fastest at first.
std::vector<std::uint64_t> shown_steps(const StepLosses& losses);

/// Rows of the same trace, cut, budget, layer and head compete by the first of leading_metrics() that they
/// have; those without a budget, oracles and skipped cells do not. True: loses least of its contest, ties
/// included; false everywhere where all are alike.
std::vector<bool> winners(const std::vector<Row>& rows);

/// The rows and, where a cut was replayed on several traces, behind them one row per policy, budget, cut,
/// layer and head whose trace is "mean of N". Every trace weighs alike. A metric has a mean if it is defined
/// on every trace: a mean over the traces that remain would not be comparable with that of another policy.
std::vector<Row> with_means(std::vector<Row> rows);
/// The same of rows of scope step, which have a mean at the steps that every trace has.
StepLosses with_means(StepLosses losses);

}  // namespace kvsim::analysis
