#include "analysis/figures/figure_rows.hpp"

#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {
namespace {

std::optional<double> minus(const std::optional<double>& value) {
  return value ? std::optional(-*value) : value;
}

/// The same difference, asked the other way round.
Statistic turned(Statistic of) {
  std::swap(of.policy, of.other);
  of.value = -of.value;
  of.low = minus(std::exchange(of.high, minus(of.low)));
  return of;
}

}  // namespace

std::vector<Statistic> statistics_where(const Records& table, const Where& where, const char* value,
                                        const char* low, const char* high) {
  const TableColumn budget(table, "budget"), policy(table, "policy"), traces(table, "traces"),
      values(table, value), lows(table, low), highs(table, high);
  const bool has_role = has_column(table, "role"), has_other = has_column(table, "other");
  std::vector<Statistic> out;
  for (const std::size_t row : rows_where(table, where))
    if (const auto number = values.number(row))
      out.push_back({budget.text(row), policy.text(row), has_role ? TableColumn(table, "role").text(row) : "",
                     has_other ? TableColumn(table, "other").text(row) : "", *number, lows.number(row),
                     highs.number(row), traces.count(row)});
  return out;
}

// Every pair stands in the table once, in one of its two directions.
std::vector<Statistic> differences_to(const std::string& best, const std::vector<Statistic>& differences) {
  std::vector<Statistic> out;
  for (const Statistic& each : differences) {
    if (each.other == best) out.push_back(each);
    if (each.policy == best) out.push_back(turned(each));
  }
  return out;
}

std::map<std::string, std::vector<Statistic>> gaps_to_best(const FigureTables& tables, const Metric& metric,
                                                           const FigureChoice& choice) {
  std::map<std::string, std::vector<Statistic>> out;
  const Records *means = tables.find("means"), *differences = tables.find("differences");
  if (means == nullptr || metric.better == Better::neither) return out;
  const Where where = {{"metric", metric.key}, {"workload", one_workload(choice)}};
  std::map<std::string, std::vector<Statistic>> at_budgets, paired;
  for (Statistic& each : statistics_where(*means, where, "mean"))
    if (each.role == "policy") at_budgets[each.budget].push_back(std::move(each));
  if (differences != nullptr)
    for (Statistic& each : statistics_where(*differences, where, "difference"))
      paired[each.budget].push_back(std::move(each));
  const double worse = metric.better == Better::lower ? 1 : -1;
  for (const auto& [budget, there] : at_budgets) {
    const Statistic* best = &there.front();
    for (const Statistic& each : there)
      if (each.traces > best->traces ||
          (each.traces == best->traces && metric.prefers(each.value, best->value)))
        best = &each;
    std::map<std::string, Statistic> to_best;
    for (const Statistic& each : differences_to(best->policy, paired[budget]))
      to_best.emplace(each.policy, worse > 0 ? each : turned(each));
    for (const Statistic& each : there) {
      const auto found = to_best.find(each.policy);
      Statistic gap{.budget = budget};
      if (&each != best && found != to_best.end())
        gap = found->second;
      else if (&each != best && each.traces == best->traces)
        gap.value = worse * (each.value - best->value);
      else if (&each != best)
        continue;
      out[each.policy].push_back(std::move(gap));
    }
  }
  return out;
}

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
