#pragma once
/// Answers of the closed loop as figures ask for them.
#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/answer_statistics.hpp"

namespace kvsim::analysis {

/// Those of one cut, without the rows of cells that were not run.
struct AnswersAtCut {
  std::string cut;
  Records all;       ///< rows of the closed loop
  Records ranked;    ///< those by which policies are ranked
  ResultsView view;  ///< budgets, policies and means of answer_metrics(); `right` of the ranked rows alone
  std::map<std::string, std::string> labels;  ///< short names of policies, by their params

  /// right where something is ranked, else kl.
  const Metric& leading() const { return answer_metric(ranked.rows.empty() ? "kl" : "right"); }
  /// How many policies are not `named`, if some are not.
  std::string remark(const std::vector<std::string>& named) const;
};

/// One per cut at which something was answered, or of the chosen one. Throws Error(usage) for a cut or
/// workload that the answers do not have.
std::vector<AnswersAtCut> answers_at_cuts(const FigureTables& tables, const FigureChoice& choice);

}  // namespace kvsim::analysis
