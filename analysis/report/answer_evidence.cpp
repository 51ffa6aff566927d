#include "analysis/report/answer_evidence.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "analysis/results/cuts.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// Means over items by budget and policy. A trace's value is the mean over its seeds.
class ItemMeans {
 public:
  void add(const std::string& budget, const std::string& params, const std::string& item, double value) {
    values_[{budget, params}][item].add(value);
  }
  /// Nothing unless every one of `items` has a value.
  std::optional<double> over(const std::set<std::string>& items, const std::string& budget,
                             const std::string& params) const {
    const auto found = values_.find({budget, params});
    if (found == values_.end()) return {};
    RunningMean mean;
    for (const std::string& item : items) {
      const auto value = found->second.find(item);
      if (value == found->second.end()) return {};
      mean.add(*value->second.value());
    }
    return mean.value();
  }

 private:
  std::map<std::pair<std::string, std::string>, std::map<std::string, RunningMean>> values_;
};

/// A column of rows of one cut. `item`: what the table calls its items.
ItemMeans item_means(const Records& rows, const char* item, std::string_view key) {
  ItemMeans out;
  if (rows.rows.empty()) return out;
  const std::size_t name = rows.column(item), params = rows.column("params"), budget = rows.column("budget"),
                    value = rows.column(key);
  for (const std::vector<Value>& row : rows.rows)
    if (const auto x = number(row[value]))
      out.add(exact_field(row[budget]), exact_field(row[params]), exact_field(row[name]), *x);
  return out;
}

/// Names of the items that have a number in a column.
std::set<std::string> items_with(const Records& answers, std::string_view key) {
  std::set<std::string> out;
  if (answers.rows.empty()) return out;
  const std::size_t item = answers.column("item"), value = answers.column(key);
  for (const std::vector<Value>& row : answers.rows)
    if (number(row[value])) out.insert(exact_field(row[item]));
  return out;
}

Records whole_models(const Records& results, const std::string& cut) {
  Records out{results.columns, {}};
  if (results.rows.empty()) return out;
  const std::size_t scope = results.column("scope"), at = results.column("cut");
  for (const std::vector<Value>& row : results.rows)
    if (exact_field(row[scope]) == "all" && exact_field(row[at]) == cut) out.rows.push_back(row);
  return out;
}

}  // namespace

const std::vector<const Metric*>& AnswerEvidence::open_measures() {
  static const std::vector<const Metric*> all = [] {
    std::vector<const Metric*> out;
    for (const char* key : {"attention_loss", "evidence_loss", "output_error", "r"})
      out.push_back(&analysis::metric(key));
    out.push_back(&all_metrics()[metric_index("kept_bytes")]);
    return out;
  }();
  return all;
}

AnswerEvidence::AnswerEvidence(const Evidence& statistics, const Records& answers, const Records& means,
                               const Records& results)
    : statistics_(&statistics) {
  for (const char* key : {"kl", "kept", "right"})
    if (statistics.decides(key)) metric_ = &answer_metric(key);
  if (metric_ == nullptr) return;
  const Records here = at_cut(answers, statistics.cut());
  const bool judged = std::string_view(metric_->key) == "right";
  const bool by_kl = std::string_view(metric_->key) == "kl";
  const Records counted = by_kl ? here : ranked_answers(here, means, metric_->key);
  const std::set<std::string> items = items_with(counted, judged ? "right_full" : metric_->key);
  const ItemMeans kl = item_means(counted, "item", "kl");
  const Records replayed = whole_models(results, statistics.cut());
  std::vector<ItemMeans> open;
  for (const Metric* each : open_measures()) open.push_back(item_means(replayed, "trace", each->key));
  for (const std::string& budget : statistics.budgets()) {
    const Question question{metric_->key, kAllWorkloads, budget};
    AtBudget& made = budgets_.emplace_back(AtBudget{budget});
    std::vector<PolicyMean> order = contest(statistics, question, *metric_);
    made.compared = order.size();
    for (const PolicyMean& each : statistics.means(question))
      if (std::none_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(made.compared),
                       [&](const PolicyMean& known) { return known.params == each.params; }))
        order.push_back(each);
    for (const PolicyMean& each : order) {
      AnsweredPolicy& policy = made.policies.emplace_back(AnsweredPolicy{each});
      for (const PolicyMean& kept : statistics.means({"kept", kAllWorkloads, budget}))
        if (kept.params == each.params && judged) policy.kept = kept;
      policy.kl = kl.over(items, budget, each.params);
      for (const ItemMeans& measure : open) policy.open.push_back(measure.over(items, budget, each.params));
    }
  }
}

const AnswerEvidence::AtBudget& AnswerEvidence::at(const std::string& budget) const {
  static const AtBudget nothing;
  const auto found = std::find_if(budgets_.begin(), budgets_.end(),
                                  [&](const AtBudget& each) { return each.budget == budget; });
  return found == budgets_.end() ? nothing : *found;
}

const std::vector<AnsweredPolicy>& AnswerEvidence::policies(const std::string& budget) const {
  return at(budget).policies;
}

std::size_t AnswerEvidence::compared(const std::string& budget) const {
  return at(budget).compared;
}

}  // namespace kvsim::analysis
