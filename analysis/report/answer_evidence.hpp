#pragma once
/// Answers of the closed loop at one cut, and beside them what the open loop measured on the same items.
#include <optional>
#include <string>
#include <vector>

#include "analysis/report/evidence.hpp"

namespace kvsim::analysis {

/// A policy at a budget. Means are over the items that policies are ranked by.
struct AnsweredPolicy {
  PolicyMean leading;                ///< of AnswerEvidence::metric(), with its interval
  std::optional<PolicyMean> kept{};  ///< beside `right`, over every workload
  std::optional<double> kl{};
  /// Of open_measures(), in their order; none: not replayed, or undefined on some item.
  std::vector<std::optional<double>> open{};
};

class AnswerEvidence {
 public:
  /// `statistics`: of the same cut; it must outlive this. `answers`: rows of tables/answers.csv; `results`:
  /// of results.csv. Both of every cut, and either may have no rows.
  AnswerEvidence(const Evidence& statistics, const Records& answers, const Records& means,
                 const Records& results);

  /// Metrics of a replay that stand beside answers.
  static const std::vector<const Metric*>& open_measures();

  /// right; where no workload is ranked by it kept, of enough items; else kl; null: there are no answers.
  const Metric* metric() const { return metric_; }
  const Evidence& statistics() const { return *statistics_; }
  /// Those of role policy that can be compared, best first; of other roles behind them.
  const std::vector<AnsweredPolicy>& policies(const std::string& budget) const;
  /// Policies that can be compared: the first of policies().
  std::size_t compared(const std::string& budget) const;

 private:
  struct AtBudget {
    std::string budget;
    std::vector<AnsweredPolicy> policies{};
    std::size_t compared = 0;
  };
  const AtBudget& at(const std::string& budget) const;

  const Evidence* statistics_;
  const Metric* metric_ = nullptr;
  std::vector<AtBudget> budgets_{};
};

}  // namespace kvsim::analysis
