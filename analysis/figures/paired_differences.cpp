#include "analysis/figures/paired_differences.hpp"

#include <set>

namespace kvsim::analysis {
namespace {

/// The same difference, asked the other way round.
Difference turned(const Difference& of) {
  const auto minus = [](const std::optional<double>& value) {
    return value ? std::optional(-*value) : value;
  };
  return {of.policy, -of.value, minus(of.high), minus(of.low), of.traces};
}

struct Mean {
  std::string policy;
  double value;
  std::uint64_t traces;
};

}  // namespace

// Every pair stands in the table once, in one of its two directions.
std::vector<Difference> differences_to(const std::string& best, const Records& table,
                                       const std::vector<std::size_t>& rows) {
  const TableColumn policy(table, "policy"), other(table, "other"), difference(table, "difference"),
      low(table, "low"), high(table, "high"), traces(table, "traces");
  std::vector<Difference> out;
  for (const std::size_t row : rows) {
    const auto value = difference.number(row);
    if (!value) continue;
    const Difference found{policy.text(row), *value, low.number(row), high.number(row), traces.count(row)};
    if (other.text(row) == best) out.push_back(found);
    if (found.policy != best) continue;
    out.push_back(turned(found));
    out.back().policy = other.text(row);
  }
  return out;
}

std::map<std::string, std::vector<Gap>> gaps_to_best(const FigureTables& tables, const Metric& metric,
                                                     const FigureChoice& choice) {
  std::map<std::string, std::vector<Gap>> out;
  const Records *means = tables.find("means"), *differences = tables.find("differences");
  if (means == nullptr || metric.better == Better::neither) return out;
  const TableColumn budgets(*means, "budget"), policy(*means, "policy"), role(*means, "role"),
      mean(*means, "mean"), traces(*means, "traces");
  std::set<std::string> all;
  for (std::size_t row = 0; row < means->rows.size(); ++row) all.insert(budgets.text(row));
  const bool less = metric.better == Better::lower;
  for (const std::string& budget : all) {
    const Where where = {{"metric", metric.key}, {"workload", one_workload(choice)}, {"budget", budget}};
    std::vector<Mean> there;
    for (const std::size_t row : rows_where(*means, where))
      if (const auto value = mean.number(row); value && role.text(row) == "policy")
        there.push_back({policy.text(row), *value, traces.count(row)});
    const Mean* best = nullptr;
    for (const Mean& each : there)
      if (best == nullptr || each.traces > best->traces ||
          (each.traces == best->traces && metric.prefers(each.value, best->value)))
        best = &each;
    if (best == nullptr) continue;
    std::map<std::string, Difference> paired;
    if (differences != nullptr)
      for (const Difference& each :
           differences_to(best->policy, *differences, rows_where(*differences, where)))
        paired.emplace(each.policy, less ? each : turned(each));
    for (const Mean& each : there) {
      const auto found = paired.find(each.policy);
      if (&each == best)
        out[each.policy].push_back({budget, 0, {}, {}});
      else if (found != paired.end())
        out[each.policy].push_back({budget, found->second.value, found->second.low, found->second.high});
      else if (each.traces == best->traces)
        out[each.policy].push_back(
            {budget, less ? each.value - best->value : best->value - each.value, {}, {}});
    }
  }
  return out;
}

}  // namespace kvsim::analysis
