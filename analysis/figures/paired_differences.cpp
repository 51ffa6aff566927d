#include "analysis/figures/paired_differences.hpp"

#include <algorithm>
#include <set>

#include "analysis/figures/results_view.hpp"

namespace kvsim::analysis {
namespace {

std::optional<double> negated(const std::optional<double>& value) {
  return value ? std::optional(-*value) : value;
}

struct Mean {
  std::string policy;
  double value;
  std::uint64_t traces;
};

/// Of the policies at a budget.
std::vector<Mean> means_at(const Records& means,
                           const std::vector<std::pair<const char*, std::string>>& where) {
  const TableColumn policy(means, "policy"), role(means, "role"), mean(means, "mean"),
      traces(means, "traces");
  std::vector<Mean> out;
  for (const std::size_t row : rows_where(means, where))
    if (const auto value = mean.number(row); value && role.text(row) == "policy")
      out.push_back({policy.text(row), *value, static_cast<std::uint64_t>(traces.number(row).value_or(0))});
  return out;
}

}  // namespace

// Every pair stands in the table once, in one of its two directions.
std::vector<Difference> differences_to(const std::string& best, const Records& table,
                                       const std::vector<std::size_t>& rows) {
  const TableColumn policy(table, "policy"), other(table, "other"), difference(table, "difference"),
      low(table, "low"), high(table, "high"), traces(table, "traces");
  std::vector<Difference> out;
  for (const std::size_t row : rows) {
    const auto value = difference.number(row);
    const auto count = static_cast<std::uint64_t>(traces.number(row).value_or(0));
    if (value && other.text(row) == best)
      out.push_back({policy.text(row), *value, low.number(row), high.number(row), count});
    if (value && policy.text(row) == best)
      out.push_back({other.text(row), -*value, negated(high.number(row)), negated(low.number(row)), count});
  }
  return out;
}

std::map<std::string, std::vector<Gap>> gaps_to_best(const FigureTables& tables, const Metric& metric,
                                                     const FigureChoice& choice) {
  std::map<std::string, std::vector<Gap>> out;
  const Records *means = tables.find("means"), *differences = tables.find("differences");
  if (means == nullptr || metric.better == Better::neither) return out;
  const TableColumn budgets(*means, "budget");
  std::set<std::string> all;
  for (std::size_t row = 0; row < means->rows.size(); ++row) all.insert(budgets.text(row));
  const double worse = metric.better == Better::lower ? 1 : -1;
  for (const std::string& budget : all) {
    const std::vector<std::pair<const char*, std::string>> where = {
        {"metric", metric.key}, {"workload", one_workload(choice)}, {"budget", budget}};
    const std::vector<Mean> at_it = means_at(*means, where);
    const Mean* best = nullptr;
    for (const Mean& each : at_it)
      if (best == nullptr || each.traces > best->traces ||
          (each.traces == best->traces && metric.prefers(each.value, best->value)))
        best = &each;
    if (best == nullptr) continue;
    std::map<std::string, Difference> paired;
    if (differences != nullptr)
      for (Difference& each : differences_to(best->policy, *differences, rows_where(*differences, where)))
        paired.emplace(each.policy, each);
    for (const Mean& each : at_it) {
      const auto found = paired.find(each.policy);
      if (&each == best) {
        out[each.policy].push_back({budget, 0, {}, {}});
      } else if (found != paired.end()) {
        const Difference& to_best = found->second;
        out[each.policy].push_back({budget, worse * to_best.value,
                                    worse > 0 ? to_best.low : negated(to_best.high),
                                    worse > 0 ? to_best.high : negated(to_best.low)});
      } else if (each.traces == best->traces) {
        out[each.policy].push_back({budget, worse * (each.value - best->value), {}, {}});
      }
    }
  }
  return out;
}

}  // namespace kvsim::analysis
