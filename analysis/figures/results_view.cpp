#include "analysis/figures/results_view.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostNamed = 8, kBestNamed = 5;

/// "12.5%" as 0.125.
std::optional<double> share_of(const std::string& budget) {
  if (budget.empty() || budget.back() != '%') return {};
  const auto percent = number_of<double>(std::string_view(budget).substr(0, budget.size() - 1));
  return percent ? std::optional(*percent / 100) : std::nullopt;
}

/// "h2o(recent=0.9)" and "h2o+pyramid" are h2o.
std::string base_name(const std::string& label) {
  return label.substr(0, label.find_first_of("(+"));
}

/// The rows of a choice, if one was made.
std::vector<std::size_t> chosen(std::vector<std::size_t> rows, const TableColumn& field,
                                const std::string& choice, const char* option) {
  if (rows.empty() || choice.empty()) return rows;
  std::set<std::string> there;
  for (const std::size_t row : rows) there.insert(field.text(row));
  known_name(choice, {there.begin(), there.end()}, option);
  std::erase_if(rows, [&](std::size_t row) { return field.text(row) != choice; });
  return rows;
}

}  // namespace

const std::string& TableColumn::text(std::size_t row) const {
  static const std::string kNone;
  const auto* found = std::get_if<std::string>(&table_->rows[row][column_]);
  return found == nullptr ? kNone : *found;
}

std::vector<std::size_t> rows_where(const Records& table, const Where& wanted) {
  std::vector<std::size_t> out;
  std::vector<TableColumn> fields;
  for (const auto& [key, value] : wanted) fields.emplace_back(table, key);
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    bool all = true;
    for (std::size_t i = 0; i < wanted.size(); ++i) all = all && fields[i].text(row) == wanted[i].second;
    if (all) out.push_back(row);
  }
  return out;
}

bool is_compared(const std::string& label, const std::string& role) {
  return role == "policy" || (role == "own_budget" && label != "full");
}

ResultsView::ResultsView(std::shared_ptr<const Records> results)
    : results_(std::move(results)),
      budget(*results_, "budget"),
      trace(*results_, "trace"),
      workload(*results_, "workload"),
      scope(*results_, "scope"),
      layer(*results_, "layer"),
      head(*results_, "head"),
      step(*results_, "step"),
      kept_tokens(*results_, "kept_tokens"),
      budget_tokens(*results_, "budget_tokens") {
  if (results_->rows.empty()) return;
  const std::map<std::string, std::string> labels = policy_labels(*results_);
  const TableColumn params(*results_, "params"), role(*results_, "role");
  std::map<std::string, std::size_t> places;
  std::map<std::string, RunningMean> sizes;  // of budgets, in tokens
  for (std::size_t row = 0; row < results_->rows.size(); ++row) {
    const std::string& name = params.text(row);
    const auto [found, fresh] = places.emplace(name, policies_.size());
    if (fresh) policies_.push_back({labels.at(name), role.text(row), name.starts_with("full(")});
    policy_of_.push_back(found->second);
    RunningMean& size = sizes[budget.text(row)];
    if (const auto tokens = budget_tokens.number(row); tokens && scope.text(row) == "all") size.add(*tokens);
  }
  shares_ = std::ranges::all_of(sizes, [](const auto& size) { return share_of(size.first).has_value(); });
  for (const auto& [name, size] : sizes) {
    places_[name] = shares_ ? *share_of(name) : size.value().value_or(0);
    budgets_.push_back(name);
  }
  std::ranges::sort(budgets_, [&](const std::string& a, const std::string& b) {
    return std::pair(places_[a], a) < std::pair(places_[b], b);
  });
}

const ResultsView::Policy& ResultsView::policy(const std::string& label) const {
  std::vector<std::string> labels;
  for (const Policy& each : policies_) labels.push_back(each.label);
  known_name(label, labels, "--policy");
  return policies_[static_cast<std::size_t>(place_in(labels, label))];
}

Axis ResultsView::budget_axis() const {
  std::vector<double> ticks;
  for (const std::string& name : budgets_) ticks.push_back(place(name));
  return {.label = shares_ ? "budget (share of the prompt)" : "budget (tokens per lane)",
          .log = !ticks.empty() && ticks.front() > 0 && ticks.back() / ticks.front() >= 8,
          .percent = shares_,
          .ticks = ticks};
}

std::optional<double> ResultsView::own_place(std::size_t row) const {
  const auto kept = kept_tokens.number(row);
  if (!kept || !shares_) return kept;
  const auto asked = budget_tokens.number(row);
  if (!asked || *asked == 0) return {};
  return *kept / *asked * place(budget.text(row));
}

std::vector<Point> ResultsView::level(const Point& value) const {
  std::vector<Point> out;
  for (const double at : {place(budgets_.front()), place(budgets_.back())})
    if (out.empty() || at > out.front().x) out.push_back({at, value.y, value.low, value.high});
  return out;
}

std::vector<std::size_t> ResultsView::rows(const std::string& wanted, const FigureChoice& choice) const {
  std::vector<std::size_t> all = rows_where(*results_, {{"scope", wanted}});
  return chosen(chosen(std::move(all), workload, choice.workload, "--workload"), trace, choice.trace,
                "--trace");
}

std::vector<std::size_t> ResultsView::rows_at(const std::string& wanted,
                                              const std::vector<std::size_t>& rows) const {
  std::vector<std::size_t> out;
  std::ranges::copy_if(rows, std::back_inserter(out),
                       [&](std::size_t row) { return budget.text(row) == wanted; });
  return out;
}

std::vector<std::size_t> ResultsView::rows_at_one_budget(const std::string& wanted,
                                                         FigureChoice& choice) const {
  const std::vector<std::size_t> all = rows(wanted, choice);
  if (all.empty()) return all;
  std::vector<std::string> there;
  for (const std::string& name : budgets_)
    if (std::ranges::any_of(all, [&](std::size_t row) { return budget.text(row) == name; }))
      there.push_back(name);
  if (choice.budget.empty()) choice.budget = there[(there.size() - 1) / 2];
  return rows_at(known_name(choice.budget, there, "--budget"), all);
}

std::vector<std::size_t> ResultsView::rows_with(const std::vector<std::size_t>& rows,
                                                const TableColumn& field) const {
  std::set<std::string> traces;
  for (const std::size_t row : rows)
    if (field.number(row)) traces.insert(trace.text(row));
  std::vector<std::size_t> out;
  std::ranges::copy_if(rows, std::back_inserter(out),
                       [&](std::size_t row) { return traces.contains(trace.text(row)); });
  return out;
}

std::vector<std::optional<double>> ResultsView::means(const std::vector<std::size_t>& rows,
                                                      const TableColumn& field) const {
  std::vector<RunningMean> means(policies_.size());
  std::vector<bool> missing(policies_.size());
  for (const std::size_t row : rows_with(rows, field))
    if (const auto value = field.number(row))
      means[policy_of_[row]].add(*value);
    else
      missing[policy_of_[row]] = true;
  std::vector<std::optional<double>> out(policies_.size());
  for (std::size_t policy = 0; policy < out.size(); ++policy)
    if (!missing[policy]) out[policy] = means[policy].value();
  return out;
}

std::size_t ResultsView::traces(const std::vector<std::size_t>& rows) const {
  std::set<std::string> traces;
  for (const std::size_t row : rows) traces.insert(trace.text(row));
  return traces.size();
}

const Metric& leading_metric(const FigureTables& tables) {
  const Records* means = tables.find("means");
  for (const Metric* each : leading_metrics()) {
    if (means != nullptr) {
      if (!rows_where(*means, {{"metric", each->key}}).empty()) return *each;
    } else if (!tables.results.rows.empty()) {
      const TableColumn value(tables.results, each->key);
      for (std::size_t row = 0; row < tables.results.rows.size(); ++row)
        if (value.number(row)) return *each;
    }
  }
  return metric("attention_loss");
}

const Metric& more_defined(const ResultsView& view, const std::vector<std::size_t>& rows, const Metric& first,
                           const Metric& other) {
  const auto has = [&](const Metric& each) {
    const TableColumn column = view.metric(each.key);
    return std::ranges::count_if(rows, [&](std::size_t row) { return column.number(row).has_value(); });
  };
  return has(other) > has(first) ? other : first;
}

const Metric& one_metric(const FigureTables& tables, FigureChoice& choice) {
  if (choice.metric.empty()) choice.metric = leading_metric(tables).key;
  return metric(choice.metric);
}

Axis metric_axis(const Metric& metric) {
  Axis axis{.label = metric.label, .percent = metric.percent};
  if (std::string_view(metric.unit) == "bytes") axis.label += " (bytes)";
  return axis;
}

std::string one_workload(const FigureChoice& choice) {
  return choice.workload.empty() ? "all" : choice.workload;
}

std::string at_budget(const std::string& budget) {
  if (!budget.empty() && budget.back() == '%') return "at " + budget + " of the prompt";
  const bool tokens = budget.find_first_not_of("0123456789") == std::string::npos;
  return "at a budget of " + budget + (tokens ? " tokens per lane" : "");
}

const std::set<std::string>& well_known_policies() {
  static const std::set<std::string> kKnown = {"random", "streaming_llm", "h2o", "snapkv"};
  return kKnown;
}

NamedPolicies::NamedPolicies(const ResultsView& view, const Metric& metric, const FigureChoice& choice)
    : chosen(!choice.policies.empty()) {
  const std::vector<ResultsView::Policy>& policies = view.policies();
  std::vector<RunningMean> gaps(policies.size());
  std::vector<std::size_t> all;
  for (const char* scope : {"all", "step", "layer", "head"})
    if (all.empty()) all = view.rows(scope, {.workload = choice.workload});
  for (const std::string& budget : view.budgets()) {
    std::vector<std::optional<double>> means = view.means(view.rows_at(budget, all), view.metric(metric.key));
    std::optional<double> best;
    for (std::size_t policy = 0; policy < means.size(); ++policy) {
      if (!policies[policy].compared()) means[policy].reset();
      if (means[policy] && (!best || metric.prefers(*means[policy], *best))) best = means[policy];
    }
    for (std::size_t policy = 0; policy < means.size(); ++policy)
      if (means[policy]) gaps[policy].add(std::fabs(*means[policy] - *best));
  }
  std::vector<std::pair<double, std::string>> ranking;
  for (std::size_t policy = 0; policy < gaps.size(); ++policy)
    if (policies[policy].compared())
      ranking.emplace_back(gaps[policy].value().value_or(std::numeric_limits<double>::infinity()),
                           policies[policy].label);
  std::ranges::stable_sort(ranking, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const std::string& wanted : choice.policies) labels.push_back(view.policy(wanted).label);
  for (std::size_t i = 0; i < ranking.size() && !chosen; ++i) {
    const bool shown = ranking.size() <= kMostNamed || i < kBestNamed ||
                       well_known_policies().contains(base_name(ranking[i].second));
    if (shown && labels.size() < kMostNamed) labels.push_back(ranking[i].second);
  }
  std::size_t named = 0;
  for (const std::string& label : labels) named += view.policy(label).compared();
  others = ranking.size() - std::min(named, ranking.size());
}

std::string NamedPolicies::remark() const {
  if (others == 0 || chosen) return grey_remark(others);
  return "Named are the five that come nearest to the best, on average over their budgets, and well-known "
         "ones. " +
         grey_remark(others);
}

std::vector<std::string> names_in_turns(const std::vector<std::vector<std::string>>& wanted) {
  std::vector<std::string> out;
  for (std::size_t place = 0; place < kMostNamed; ++place)
    for (const std::vector<std::string>& labels : wanted)
      if (place < labels.size() && out.size() < kMostNamed) add_once(out, labels[place]);
  return out;
}

std::string grey_remark(std::size_t others) {
  if (others == 0) return "";
  return others == 1 ? "Grey: the other policy." : "Grey: the " + std::to_string(others) + " other policies.";
}

std::string short_meaning(const std::string& cut) {
  if (cut == "prompt") return "question known";
  return cut == "question" ? "question not known" : cut_meaning(cut);
}

}  // namespace kvsim::analysis
