#include "analysis/statistics/trace_values.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "analysis/results/policy_labels.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

std::string text_or_empty(const Value& value) {
  return std::holds_alternative<std::monostate>(value) ? "" : text(value);
}

std::vector<std::size_t> rows_of_whole_models(const Records& results, const std::string& wanted) {
  const std::size_t scope = results.column("scope"), cut = results.column("cut");
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < results.rows.size(); ++i)
    if (text(results.rows[i][scope]) == "all" && text_or_empty(results.rows[i][cut]) == wanted)
      rows.push_back(i);
  return rows;
}

/// Places of names, in order of appearance.
class Names {
 public:
  /// Whether it is new.
  bool add(const std::string& name) { return places_.try_emplace(name, places_.size()).second; }
  std::size_t at(const std::string& name) const { return places_.at(name); }

 private:
  std::map<std::string, std::size_t> places_;
};

std::uint64_t prompt_of(const std::string& trace, const std::string& cut,
                        const std::vector<TraceId>& lengths) {
  for (const TraceId& each : lengths)
    if (each.name == trace && (each.cut.empty() || each.cut == cut)) return each.prompt;
  bug("no length of a trace", trace);
}

}  // namespace

TraceValues::TraceValues(const Records& results, const std::string& cut, const std::vector<TraceId>& lengths,
                         std::vector<const Metric*> metrics)
    : metrics_(std::move(metrics)) {
  const std::vector<std::size_t> rows = rows_of_whole_models(results, cut);
  find_names(results, rows);
  for (Trace& trace : traces_) trace.prompt = prompt_of(trace.name, cut, lengths);
  average_seeds(results, rows);
}

void TraceValues::find_names(const Records& results, const std::vector<std::size_t>& rows) {
  const std::size_t trace = results.column("trace"), workload = results.column("workload"),
                    params = results.column("params"), budget = results.column("budget"),
                    role = results.column("role");
  const std::map<std::string, std::string> labels = policy_labels(results);
  std::map<std::string, std::string> workloads;
  Names known_policies, known_budgets;
  for (const std::size_t i : rows) {
    const std::vector<Value>& row = results.rows[i];
    const std::string kind = text_or_empty(row[workload]);
    if (kind == "all") input_error("a workload cannot be called all", text(row[trace]));
    if (const auto& [known, fresh] = workloads.try_emplace(text(row[trace]), kind);
        !fresh && known->second != kind)
      input_error("has rows of workload '" + known->second + "' and of '" + kind + "'", text(row[trace]));
    if (known_policies.add(text(row[params])))
      policies_.push_back({labels.at(text(row[params])), text(row[params]), text(row[role])});
    if (known_budgets.add(text(row[budget]))) budgets_.push_back(text(row[budget]));
  }
  for (const auto& [name, kind] : workloads) traces_.push_back({name, kind, 0});
  std::ranges::sort(traces_, [](const Trace& a, const Trace& b) {
    return std::tie(a.workload, a.name) < std::tie(b.workload, b.name);
  });
}

void TraceValues::average_seeds(const Records& results, const std::vector<std::size_t>& rows) {
  Names trace_places, policy_places, budget_places;
  for (const Trace& trace : traces_) trace_places.add(trace.name);
  for (const Policy& policy : policies_) policy_places.add(policy.params);
  for (const std::string& budget : budgets_) budget_places.add(budget);

  const std::size_t trace = results.column("trace"), params = results.column("params"),
                    budget = results.column("budget"), seed = results.column("seed");
  using Cell = std::tuple<std::size_t, std::size_t, std::size_t>;  // budget, policy, trace
  std::map<Cell, std::map<double, std::size_t>> rows_by_seed;  // ascending seeds: sums in one order, always
  for (const std::size_t i : rows) {
    const std::vector<Value>& row = results.rows[i];
    const Cell cell{budget_places.at(text(row[budget])), policy_places.at(text(row[params])),
                    trace_places.at(text(row[trace]))};
    if (!rows_by_seed[cell].try_emplace(number(row[seed]).value_or(0), i).second)
      input_error("has two rows of " + text(row[params]) + " at " + text(row[budget]) + " for one seed",
                  text(row[trace]));
  }

  for (const auto& [cell, seeds] : rows_by_seed) runs_ = std::max(runs_, seeds.size());
  values_.assign(metrics_.size() * row_of(1, 0, 0), kUndefined);
  run_values_.assign(values_.size() * runs_, kUndefined);
  for (std::size_t m = 0; m < metrics_.size(); ++m) {
    const std::size_t column = results.column(metrics_[m]->key);
    for (const auto& [cell, seeds] : rows_by_seed) {
      const std::size_t place = row_of(m, std::get<0>(cell), std::get<1>(cell)) + std::get<2>(cell);
      double sum = 0;
      std::size_t run = place * runs_;
      for (const auto& [_, row] : seeds)
        sum += run_values_[run++] = number(results.rows[row][column]).value_or(kUndefined);
      values_[place] = sum / static_cast<double>(seeds.size());
      while (run < (place + 1) * runs_) run_values_[run++] = values_[place];
    }
  }
}

std::vector<Group> groups_of(const std::vector<TraceValues::Trace>& traces) {
  std::set<std::string> workloads;
  for (const TraceValues::Trace& trace : traces) workloads.insert(trace.workload);
  std::vector<Group> groups{{"all", TraceSet(traces.size(), true)}};
  if (workloads.size() < 2) return groups;
  workloads.erase("");  // traces of no known kind have nothing in common
  for (const std::string& workload : workloads) {
    Group& group = groups.emplace_back(Group{workload, {}});
    for (const TraceValues::Trace& trace : traces) group.traces.push_back(trace.workload == workload);
  }
  return groups;
}

TraceSet both(const TraceSet& a, const TraceSet& b) {
  TraceSet out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] && b[i];
  return out;
}

std::uint64_t members(const TraceSet& set) {
  return static_cast<std::uint64_t>(std::ranges::count(set, true));
}

double mean_over(const TraceSet& set, std::span<const double> values) {
  double sum = 0;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (set[i]) sum += values[i];
  return sum / static_cast<double>(members(set));
}

std::pair<std::uint64_t, std::uint64_t> prompts_of(const TraceSet& set,
                                                   const std::vector<TraceValues::Trace>& traces) {
  std::pair<std::uint64_t, std::uint64_t> range{~0ULL, 0};
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (!set[i]) continue;
    range.first = std::min(range.first, traces[i].prompt);
    range.second = std::max(range.second, traces[i].prompt);
  }
  return range;
}

}  // namespace kvsim::analysis
