#pragma once
/// Attention loss at measured steps, one line per cell.
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// Rows of scope step folded into one per cell.
struct StepLosses {
  std::vector<Row> rows{};                                 ///< attention loss is its mean over steps
  std::vector<std::map<std::uint64_t, double>> by_step{};  ///< per row; empty: skipped
};
StepLosses step_losses(const std::vector<Row>& rows);

/// All of a few steps; of many 0, 1, 2, 4, ... and the last, because loss grows fastest at first.
std::vector<std::uint64_t> shown_steps(const StepLosses& losses);

}  // namespace kvsim::analysis
