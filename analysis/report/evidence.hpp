#pragma once
/// The statistics of a study at one cut as findings ask for them: by metric, workload and budget, from the
/// tables `means`, `differences` and `ranks` and the results they were made of (columns:
/// analysis/results/METRICS.md).
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// The workload of rows that speak of every trace.
inline constexpr const char* kAllWorkloads = "all";

/// What numbers are about.
struct Question {
  std::string metric, workload, budget;
  auto operator<=>(const Question&) const = default;
};

struct PolicyMean {
  std::string policy, params, role;
  std::uint64_t traces = 0;
  double mean = 0;
  std::optional<double> low, high;               ///< none: too few traces
  std::uint64_t prompt_min = 0, prompt_max = 0;  ///< tokens
};

/// policy - other, in the metric's unit, over the traces both have.
struct PairedDifference {
  std::string policy, params, other, other_params;
  std::uint64_t traces = 0;
  double difference = 0;
  std::optional<double> low, high;
  std::uint64_t better = 0, equal = 0, worse = 0;  ///< traces on which `policy` is so

  /// The interval leaves out zero.
  bool distinguishable() const { return low && high && (*low > 0 || *high < 0); }
  PairedDifference reversed() const;
};

struct PolicyRank {
  std::string policy, params;
  std::uint64_t traces = 0;
  double rank = 0;
  std::optional<double> low, high, concordance;
};

class Evidence {
 public:
  /// Tables may be without rows. Throws Error(input) when one has rows and lacks a column it must have.
  Evidence(const std::string& cut, const Records& means, const Records& differences, const Records& ranks,
           const Records& results, const Records& answers = {});

  const std::string& cut() const { return cut_; }

  /// Of every role, in the table's order; empty: nothing is known.
  const std::vector<PolicyMean>& means(const Question& question) const;
  const std::vector<PolicyRank>& ranks(const Question& question) const;
  /// Whichever way round the table has it.
  std::optional<PairedDifference> difference(const Question& question, const std::string& params,
                                             const std::string& other_params) const;

  /// Whether a policy holds over kMostHeld times the budget after the cut, mean over its rows of either loop.
  bool overspends(const std::string& params, const std::string& budget) const;

  /// Whether `key`, a number of answers, can decide over all traces: it has means, and those of `kept` are
  /// over enough questions (full_cache_gate.hpp).
  bool decides(const std::string& key) const;

  /// Of any metric: budgets by size, workloads in the table's order and without kAllWorkloads.
  const std::vector<std::string>& budgets() const { return budgets_; }
  const std::vector<std::string>& workloads() const { return workloads_; }
  /// The first of leading_metrics() that has a mean over all traces; null: none.
  const Metric* leading_metric() const;

 private:
  void sort_budgets(const Records& results);
  void add_held(const Records& rows, const char* table);

  std::string cut_;
  std::map<Question, std::vector<PolicyMean>> means_;
  std::map<Question, std::vector<PolicyRank>> ranks_;
  std::map<Question, std::map<std::pair<std::string, std::string>, PairedDifference>> differences_;
  std::set<std::pair<std::string, std::string>> overspending_;  ///< params, budget
  std::vector<std::string> budgets_, workloads_;
};

/// Of its budget, what a policy may hold after the cut to be ranked with those that keep it: blocks and the
/// rounding of heads' shares take a little more.
inline constexpr double kMostHeld = 1.25;

/// The policies that can be compared there, best first: those that keep the budget and were ranked, for these
/// have a value in every trace where any policy has one; or the only one. Equal means keep the table's order.
std::vector<PolicyMean> contest(const Evidence& evidence, const Question& question, const Metric& metric);

struct Win {
  std::string budget;
  std::vector<PolicyMean> best;           ///< with equal means
  std::vector<PolicyMean> rivals;         ///< behind, but not distinguishable from the best
  std::optional<PolicyMean> next;         ///< the best of the others
  std::optional<PairedDifference> ahead;  ///< next - best

  bool clear() const { return best.size() == 1 && ahead && ahead->distinguishable(); }
};

/// One per budget where policies can be compared, smallest budget first, over all traces.
std::vector<Win> wins(const Evidence& evidence, const Metric& metric);

}  // namespace kvsim::analysis
