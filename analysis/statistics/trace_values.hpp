#pragma once
/// Results of a study at one cut, by trace: one value per metric, budget,
/// policy and trace.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/results/document.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/resamples.hpp"

namespace kvsim::analysis {

class TraceValues {
 public:
  struct Trace {
    std::string name, workload;  ///< workload empty: not known
    std::uint64_t prompt = 0;
  };
  struct Policy {
    std::string label, params, role;
  };

  /// Rows of the cut and of scope `all`; a value is the mean over a trace's
  /// seeds, undefined as soon as one of them is. A cell that was run with fewer
  /// seeds than others counts its mean for the rest. Errors: statistics_of().
  TraceValues(const Records& results, const std::string& cut, const std::vector<TraceId>& lengths,
              std::vector<const Metric*> metrics);

  const std::vector<Trace>& traces() const { return traces_; }          ///< by workload, then name
  const std::vector<Policy>& policies() const { return policies_; }     ///< in order of appearance
  const std::vector<std::string>& budgets() const { return budgets_; }  ///< in order of appearance
  const std::vector<const Metric*>& metrics() const { return metrics_; }

  /// One per trace; NaN where undefined.
  std::span<const double> values(std::size_t metric, std::size_t budget, std::size_t policy) const {
    return std::span(values_).subspan(row_of(metric, budget, policy), traces_.size());
  }
  std::size_t runs() const { return runs_; }  ///< seeds that a trace was run with
  /// [traces][runs()].
  std::span<const double> run_values(std::size_t metric, std::size_t budget, std::size_t policy) const {
    return std::span(run_values_).subspan(row_of(metric, budget, policy) * runs_, traces_.size() * runs_);
  }

 private:
  void find_names(const Records& results, const std::vector<std::size_t>& rows);
  void average_seeds(const Records& results, const std::vector<std::size_t>& rows);
  std::size_t row_of(std::size_t metric, std::size_t budget, std::size_t policy) const {
    return ((metric * budgets_.size() + budget) * policies_.size() + policy) * traces_.size();
  }

  std::vector<Trace> traces_;
  std::vector<Policy> policies_;
  std::vector<std::string> budgets_;
  std::vector<const Metric*> metrics_;
  std::size_t runs_ = 1;
  std::vector<double> values_, run_values_;
};

// Sets of a study's traces.

/// Traces that are pooled into one number.
struct Group {
  std::string workload;
  TraceSet traces;
};
/// All of them, called "all"; with several workloads one more group per workload that is known.
std::vector<Group> groups_of(const std::vector<TraceValues::Trace>& traces);

/// Of sets of equal length.
TraceSet both(const TraceSet& a, const TraceSet& b);
/// How many traces are in it.
std::uint64_t members(const TraceSet& set);
/// Mean of the values of its members; `values`: one per trace of the study.
double mean_over(const TraceSet& set, std::span<const double> values);
/// Shortest and longest prompt of its members, in tokens.
std::pair<std::uint64_t, std::uint64_t> prompts_of(const TraceSet& set,
                                                   const std::vector<TraceValues::Trace>& traces);

}  // namespace kvsim::analysis
