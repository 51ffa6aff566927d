#pragma once
/// Answers, means, ranks and paired differences of policies, as figures take them from their tables.
#include <map>

#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/answer_statistics.hpp"

namespace kvsim::analysis {

/// A number of a policy at a budget, and its interval.
struct Statistic {
  std::string budget{}, policy{}, role{};
  std::string other{};  ///< policy that a difference is to
  double value = 0;
  std::optional<double> low{}, high{};
  std::uint64_t traces = 0;
};

/// Rows that say what is asked, and have a number in column `value`.
std::vector<Statistic> statistics_where(const Records& table, const Where& where, const char* value,
                                        const char* low = "low", const char* high = "high");

/// Of all others to `best`.
std::vector<Statistic> differences_to(const std::string& best, const std::vector<Statistic>& differences);

/// By policy, how much worse than the best policy of a budget it is. The best has a gap of 0: it is the one
/// of the best mean among the policies over the most traces of the budget. Another one that could not run on
/// all of these is compared on its own. Without a table of differences gaps are those of the means, and have
/// no interval.
std::map<std::string, std::vector<Statistic>> gaps_to_best(const FigureTables& tables, const Metric& metric,
                                                           const FigureChoice& choice);

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
