#pragma once
/// Answers of the closed loop as figures ask for them.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/answer_statistics.hpp"

namespace kvsim::analysis {

/// Those of one cut.
class AnswerView {
 public:
  /// `answers`: rows of the cut, of which those of cells that were not run are left out; `means`: of
  /// statistics_of().
  AnswerView(std::string cut, Records answers, const Records& means);
  AnswerView(AnswerView&&) = default;

  const std::string& cut() const { return cut_; }
  const Records& all() const { return answers_; }    ///< rows of the closed loop
  const Records& ranked() const { return ranked_; }  ///< those by which policies are ranked
  /// Budgets, policies and means of answer_metrics(); `right` of the ranked rows alone.
  const ResultsView& view() const { return *view_; }
  /// right where something is ranked, else kl.
  const Metric& leading() const;
  /// The short name of a policy, by the params of one of its rows.
  const std::string& label(const std::string& params) const { return labels_.at(params); }
  /// "Grey: the 3 other policies.", of those that are not `named`; empty: all are.
  std::string remark(const std::vector<std::string>& named) const;

 private:
  std::string cut_;
  Records answers_, ranked_;
  std::unique_ptr<Records> comparable_;
  std::unique_ptr<ResultsView> view_;
  std::map<std::string, std::string> labels_;
};

/// One per cut at which something was answered, or of the chosen one. Throws Error(usage) for a cut or
/// workload that the answers do not have.
std::vector<AnswerView> answer_views(const FigureTables& tables, const FigureChoice& choice);

}  // namespace kvsim::analysis
