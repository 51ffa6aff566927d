#include "analysis/results/console/contest.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {
namespace {

/// What is compared with what.
using Contest = std::tuple<std::string, std::string, std::string, std::optional<std::uint32_t>,
                           std::optional<std::uint32_t>>;
Contest contest_of(const Row& row) {
  return {row.trace, row.cut, row.budget, row.layer, row.head};
}

/// Lower is better; undefined for rows out of competition.
std::optional<double> badness(const Row& row, const Metric& metric) {
  if (row.own_budget || row.oracle) return {};
  return row[metric.key]
             ? std::optional(metric.better == Better::higher ? -*row[metric.key] : *row[metric.key])
             : std::nullopt;
}

/// What they compete by: the first metric that one of them has. Cells without it, such as those that store
/// other numbers, are out of competition.
const Metric& metric_of(const std::vector<Row>& rows) {
  for (const Metric* metric : leading_metrics())
    if (std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row[metric->key].has_value(); }))
      return *metric;
  return *leading_metrics().back();
}

}  // namespace

std::vector<bool> winners(const std::vector<Row>& rows) {
  struct Range {
    double least, most;
  };
  std::map<Contest, Range> ranges;
  const Metric& metric = metric_of(rows);
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row, metric);
    if (!bad) continue;
    const auto [entry, fresh] = ranges.try_emplace(contest_of(row), Range{*bad, *bad});
    entry->second.least = std::min(entry->second.least, *bad);
    entry->second.most = std::max(entry->second.most, *bad);
  }
  std::vector<bool> won;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row, metric);
    const auto range = ranges.find(contest_of(row));
    won.push_back(bad && *bad == range->second.least && range->second.least < range->second.most);
  }
  return won;
}

}  // namespace kvsim::analysis
