#include "analysis/figures/answer_view.hpp"

#include <algorithm>

#include "analysis/results/cuts.hpp"
#include "analysis/results/policy_labels.hpp"

namespace kvsim::analysis {
namespace {

/// Without the rows of cells that were not run.
Records served(Records answers) {
  const TableColumn skipped(answers, "skipped");
  Records out{answers.columns, {}};
  for (std::size_t row = 0; row < answers.rows.size(); ++row)
    if (skipped.text(row).empty()) out.rows.push_back(std::move(answers.rows[row]));
  return out;
}

std::map<std::string, std::string> roles_of(const Records& means) {
  std::map<std::string, std::string> out;
  if (means.rows.empty()) return out;
  const TableColumn params(means, "params"), role(means, "role");
  for (std::size_t row = 0; row < means.rows.size(); ++row) out.emplace(params.text(row), role.text(row));
  return out;
}

}  // namespace

AnswerView::AnswerView(std::string cut, Records answers, const Records& means)
    : cut_(std::move(cut)), answers_(served(std::move(answers))), ranked_(ranked_answers(answers_, means)) {
  comparable_ = std::make_unique<Records>(comparable_answers(answers_, roles_of(means), 0));
  const std::vector<std::string> items = distinct(ranked_, "item");
  const std::size_t item = comparable_->column("trace"), right = comparable_->column("right");
  for (std::vector<Value>& row : comparable_->rows)
    if (std::find(items.begin(), items.end(), exact_field(row[item], "")) == items.end())
      row[right] = Value();
  // A view asks for the columns of every scope.
  for (const char* key : {"layer", "head", "step", "kept_tokens"}) {
    comparable_->columns.push_back({key, "", ""});
    for (std::vector<Value>& row : comparable_->rows) row.emplace_back();
  }
  view_ = std::make_unique<ResultsView>(*comparable_);
  labels_ = policy_labels(answers_);
}

const Metric& AnswerView::leading() const {
  return answer_metric(ranked_.rows.empty() ? "kl" : "right");
}

std::string AnswerView::remark(const std::vector<std::string>& named) const {
  const auto others = std::count_if(
      view_->policies().begin(), view_->policies().end(), [&](const ResultsView::Policy& policy) {
        return policy.compared() && std::find(named.begin(), named.end(), policy.label) == named.end();
      });
  if (others == 0) return "";
  return others == 1 ? "Grey: the other policy." : "Grey: the " + std::to_string(others) + " other policies.";
}

std::vector<AnswerView> answer_views(const FigureTables& tables, const FigureChoice& choice) {
  std::vector<AnswerView> out;
  const Records* answers = tables.find(kAnswersTable);
  if (answers == nullptr) return out;
  static const Records kNone;
  const Records* means = tables.find("means");
  const std::vector<std::string> cuts = cuts_of(*answers);
  if (!choice.cut.empty()) known_name(choice.cut, cuts, "--cut");
  if (!choice.workload.empty()) known_name(choice.workload, distinct(*answers, "workload"), "--workload");
  for (const std::string& cut : cuts)
    if (choice.cut.empty() || choice.cut == cut) {
      AnswerView view(cut, at_cut(*answers, cut), means == nullptr ? kNone : *means);
      if (!view.all().rows.empty()) out.push_back(std::move(view));
    }
  return out;
}

}  // namespace kvsim::analysis
