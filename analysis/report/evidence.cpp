#include "analysis/report/evidence.hpp"

#include <algorithm>

#include "analysis/statistics/full_cache_gate.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// A table's rows, field by field.
class Fields {
 public:
  Fields(const Records& records, std::string table) : records_(records), table_(std::move(table)) {}

  void go_to(const std::vector<Value>& row) { row_ = &row; }

  /// Names may look like numbers: a budget of 128, a trace called 7.
  std::string name(std::string_view key) const { return exact_field(field(key), ""); }
  std::optional<double> number_or_none(std::string_view key) const { return number(field(key)); }
  double real(std::string_view key) const {
    const std::optional<double> found = number_or_none(key);
    if (!found) input_error("no number in column " + std::string(key), table_);
    return *found;
  }
  std::uint64_t count(std::string_view key) const {
    const double found = real(key);
    if (!(found >= 0 && found < 1e15)) input_error("no count in column " + std::string(key), table_);
    return static_cast<std::uint64_t>(found);
  }
  Question question() const { return {name("metric"), name("workload"), name("budget")}; }

 private:
  const Value& field(std::string_view key) const {
    for (std::size_t i = 0; i < records_.columns.size(); ++i)
      if (records_.columns[i].key == key) return (*row_)[i];
    input_error("no column " + std::string(key), table_, "Write the tables again: kvsim study.");
  }

  const Records& records_;
  const std::string table_;
  const std::vector<Value>* row_ = nullptr;
};

template <class T>
const std::vector<T>& found_or_nothing(const std::map<Question, std::vector<T>>& all,
                                       const Question& question) {
  static const std::vector<T> nothing;
  const auto found = all.find(question);
  return found == all.end() ? nothing : found->second;
}

}  // namespace

PairedDifference PairedDifference::reversed() const {
  const auto negative = [](const std::optional<double>& number) {
    return number ? std::optional<double>(-*number) : std::nullopt;
  };
  return {other,          other_params,  policy, params, traces, -difference,
          negative(high), negative(low), worse,  equal,  better};
}

Evidence::Evidence(const std::string& cut, const Records& means, const Records& differences,
                   const Records& ranks, const Records& results, const Records& answers)
    : cut_(cut) {
  Fields of_mean(means, "means"), of_difference(differences, "differences"), of_rank(ranks, "ranks");
  for (const std::vector<Value>& row : means.rows) {
    of_mean.go_to(row);
    if (of_mean.name("cut") != cut_) continue;
    const Question question = of_mean.question();
    add_once(budgets_, question.budget);
    if (question.workload != kAllWorkloads) add_once(workloads_, question.workload);
    means_[question].push_back({of_mean.name("policy"), of_mean.name("params"), of_mean.name("role"),
                                of_mean.count("traces"), of_mean.real("mean"), of_mean.number_or_none("low"),
                                of_mean.number_or_none("high"), of_mean.count("prompt_min"),
                                of_mean.count("prompt_max")});
  }
  for (const std::vector<Value>& row : differences.rows) {
    const Fields& of = of_difference;
    of_difference.go_to(row);
    if (of.name("cut") != cut_) continue;
    PairedDifference found{of.name("policy"),        of.name("params"),         of.name("other"),
                           of.name("other_params"),  of.count("traces"),        of.real("difference"),
                           of.number_or_none("low"), of.number_or_none("high"), of.count("better"),
                           of.count("equal"),        of.count("worse")};
    auto pair = std::pair(found.params, found.other_params);
    differences_[of.question()].emplace(std::move(pair), std::move(found));
  }
  for (const std::vector<Value>& row : ranks.rows) {
    const Fields& of = of_rank;
    of_rank.go_to(row);
    if (of.name("cut") != cut_) continue;
    ranks_[of.question()].push_back({of.name("policy"), of.name("params"), of.count("traces"),
                                     of.real("rank"), of.number_or_none("rank_low"),
                                     of.number_or_none("rank_high"), of.number_or_none("concordance")});
  }
  sort_budgets(results);
  add_held(results, "results.csv");
  add_held(answers, "answers");
}

const std::vector<PolicyMean>& Evidence::means(const Question& question) const {
  return found_or_nothing(means_, question);
}

const std::vector<PolicyRank>& Evidence::ranks(const Question& question) const {
  return found_or_nothing(ranks_, question);
}

std::optional<PairedDifference> Evidence::difference(const Question& question, const std::string& params,
                                                     const std::string& other_params) const {
  const auto of_question = differences_.find(question);
  if (of_question == differences_.end()) return {};
  const auto& pairs = of_question->second;
  if (const auto found = pairs.find({params, other_params}); found != pairs.end()) return found->second;
  if (const auto found = pairs.find({other_params, params}); found != pairs.end())
    return found->second.reversed();
  return {};
}

bool Evidence::overspends(const std::string& params, const std::string& budget) const {
  return overspending_.contains({params, budget});
}

bool Evidence::decides(const std::string& key) const {
  const std::uint64_t least = key == "kept" ? kLeastAnswered : 1;
  return std::ranges::any_of(budgets_, [&](const std::string& budget) {
    const std::vector<PolicyMean>& all = means({key, kAllWorkloads, budget});
    return std::ranges::any_of(all, [&](const PolicyMean& each) { return each.traces >= least; });
  });
}

const Metric* Evidence::leading_metric() const {
  for (const Metric* metric : leading_metrics())
    for (const std::string& budget : budgets_)
      if (!means({metric->key, kAllWorkloads, budget}).empty()) return metric;
  return nullptr;
}

void Evidence::sort_budgets(const Records& results) {
  Fields of(results, "results.csv");
  std::map<std::string, RunningMean> sizes;
  for (const std::vector<Value>& row : results.rows) {
    of.go_to(row);
    if (of.name("scope") != "all" || of.name("cut") != cut_) continue;
    const std::string budget = of.name("budget");
    if (const auto tokens = of.number_or_none("budget_tokens")) sizes[budget].add(*tokens);
  }
  const auto size = [&](const std::string& budget) {
    const auto found = sizes.find(budget);
    return found == sizes.end() ? 0 : *found->second.value();
  };
  std::ranges::stable_sort(budgets_,
                           [&](const std::string& a, const std::string& b) { return size(a) < size(b); });
}

void Evidence::add_held(const Records& rows, const char* table) {
  Fields of(rows, table);
  const bool scoped = has_column(rows, "scope");
  std::map<std::pair<std::string, std::string>, RunningMean> shares;
  for (const std::vector<Value>& row : rows.rows) {
    of.go_to(row);
    if (of.name("cut") != cut_ || (scoped && of.name("scope") != "all")) continue;
    const auto asked = of.number_or_none("budget_tokens"), kept = of.number_or_none("kept_tokens");
    if (asked && kept && *asked > 0) shares[{of.name("params"), of.name("budget")}].add(*kept / *asked);
  }
  for (const auto& [cell, share] : shares)
    if (*share.value() > kMostHeld) overspending_.insert(cell);
}

std::vector<PolicyMean> contest(const Evidence& evidence, const Question& question, const Metric& metric) {
  std::set<std::string> ranked;
  for (const PolicyRank& each : evidence.ranks(question)) ranked.insert(each.params);
  std::vector<PolicyMean> policies;
  for (const PolicyMean& each : evidence.means(question))
    if (each.role == "policy" && !evidence.overspends(each.params, question.budget)) policies.push_back(each);
  const bool alone = policies.size() == 1;
  std::erase_if(policies, [&](const PolicyMean& each) { return !alone && !ranked.contains(each.params); });
  std::ranges::stable_sort(
      policies, [&](const PolicyMean& a, const PolicyMean& b) { return metric.prefers(a.mean, b.mean); });
  return policies;
}

namespace {

Win win_at(const Evidence& evidence, const Metric& metric, const std::string& budget) {
  const Question question{metric.key, kAllWorkloads, budget};
  const std::vector<PolicyMean> all = contest(evidence, question, metric);
  Win win{budget, {}, {}, {}, {}};
  for (const PolicyMean& each : all) {
    if (each.mean == all.front().mean) {
      win.best.push_back(each);
      continue;
    }
    const auto behind = evidence.difference(question, each.params, win.best.front().params);
    if (!win.next) {
      win.next = each;
      win.ahead = behind;
    }
    if (!behind || !behind->distinguishable()) win.rivals.push_back(each);
  }
  return win;
}

}  // namespace

std::vector<Win> wins(const Evidence& evidence, const Metric& metric) {
  std::vector<Win> out;
  for (const std::string& budget : evidence.budgets()) {
    Win win = win_at(evidence, metric, budget);
    if (!win.best.empty()) out.push_back(std::move(win));
  }
  return out;
}

}  // namespace kvsim::analysis
