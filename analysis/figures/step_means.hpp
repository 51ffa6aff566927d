#pragma once
/// Rows of measured steps, and means over traces and seeds step by step.
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {

/// By step.
using StepMeans = std::map<double, RunningMean>;

std::vector<Point> points_of(const StepMeans& steps);

/// The rows of the steps that every trace has: a mean over fewer traces would be another one.
class StepRows {
 public:
  /// `rows`: of scope step.
  StepRows(const ResultsView& view, const std::vector<std::size_t>& rows);

  const std::vector<std::size_t>& rows() const { return rows_; }
  std::size_t traces() const { return traces_; }
  bool left_out() const { return left_out_; }  ///< whether some trace has further steps

 private:
  std::vector<std::size_t> rows_{};
  std::size_t traces_ = 0;
  bool left_out_ = false;
};

}  // namespace kvsim::analysis
