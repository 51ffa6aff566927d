#include "analysis/figures/answers_at_cut.hpp"

#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/results/policy_labels.hpp"

namespace kvsim::analysis {
namespace {

Records served(Records answers) {
  const TableColumn skipped(answers, "skipped");
  Records out{answers.columns, {}};
  for (std::size_t row = 0; row < answers.rows.size(); ++row)
    if (skipped.text(row).empty()) out.rows.push_back(std::move(answers.rows[row]));
  return out;
}

std::map<std::string, std::string> roles_of(const Records& means) {
  std::map<std::string, std::string> out;
  const TableColumn params(means, "params"), role(means, "role");
  for (std::size_t row = 0; row < means.rows.size(); ++row) out.emplace(params.text(row), role.text(row));
  return out;
}

/// As rows of results, with the columns of every scope.
Records as_results(const Records& all, const Records& ranked, const Records& means) {
  Records out = comparable_answers(all, roles_of(means), 0);
  const std::vector<std::string> items = distinct(ranked, "item");
  const std::size_t item = out.column("trace"), right = out.column("right");
  for (std::vector<Value>& row : out.rows)
    if (place_in(items, exact_field(row[item], "")) < 0) row[right] = Value();
  for (const char* key : {"layer", "head", "step", "kept_tokens"}) {
    out.columns.push_back({key, "", ""});
    for (std::vector<Value>& row : out.rows) row.emplace_back();
  }
  return out;
}

}  // namespace

std::string AnswersAtCut::remark(const std::vector<std::string>& named) const {
  return grey_remark(
      static_cast<std::size_t>(std::ranges::count_if(view.policies(), [&](const ResultsView::Policy& policy) {
        return policy.compared() && place_in(named, policy.label) < 0;
      })));
}

std::vector<AnswersAtCut> answers_at_cuts(const FigureTables& tables, const FigureChoice& choice) {
  static const Records kNone;
  std::vector<AnswersAtCut> out;
  const Records *answers = tables.find(kAnswersTable), *means = tables.find("means");
  if (answers == nullptr) return out;
  if (means == nullptr) means = &kNone;
  const std::vector<std::string> cuts = cuts_of(*answers);
  if (!choice.cut.empty()) known_name(choice.cut, cuts, "--cut");
  if (!choice.workload.empty()) known_name(choice.workload, distinct(*answers, "workload"), "--workload");
  for (const std::string& cut : cuts) {
    if (!choice.cut.empty() && choice.cut != cut) continue;
    Records all = served(at_cut(*answers, cut));
    if (all.rows.empty()) continue;
    Records ranked = ranked_answers(all, *means);
    ResultsView view(as_results(all, ranked, *means));
    std::map<std::string, std::string> labels = policy_labels(all);
    out.push_back({cut, std::move(all), std::move(ranked), std::move(view), std::move(labels)});
  }
  return out;
}

}  // namespace kvsim::analysis
