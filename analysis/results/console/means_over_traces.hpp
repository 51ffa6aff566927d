#pragma once
/// Means over the traces of a replay, for the table that people read. The formats for machines have rows of
/// single traces only: whoever groups those by trace, or averages them, would count a row of means as one
/// more trace.
#include <vector>

#include "analysis/results/console/step_losses.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// The rows and, where a cut was replayed on several traces, behind them one row per policy, budget, cut,
/// layer and head whose trace is "mean of N". Every trace weighs alike. A metric has a mean if it is defined
/// on every trace: a mean over the traces that remain would not be comparable with that of another policy.
std::vector<Row> with_means(std::vector<Row> rows);
/// The same of rows of scope step, which have a mean at the steps that every trace has.
StepLosses with_means(StepLosses losses);

}  // namespace kvsim::analysis
