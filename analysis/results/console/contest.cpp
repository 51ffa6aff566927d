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
std::optional<double> badness(const Row& row) {
  if (row.own_budget || row.oracle) return {};
  for (const Metric* metric : leading_metrics())
    if (const std::optional<double> value = row[metric->key])
      return metric->better == Better::higher ? -*value : *value;
  return {};
}

}  // namespace

std::vector<bool> winners(const std::vector<Row>& rows) {
  struct Range {
    double least, most;
  };
  std::map<Contest, Range> ranges;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row);
    if (!bad) continue;
    const auto [entry, fresh] = ranges.try_emplace(contest_of(row), Range{*bad, *bad});
    entry->second.least = std::min(entry->second.least, *bad);
    entry->second.most = std::max(entry->second.most, *bad);
  }
  std::vector<bool> won;
  for (const Row& row : rows) {
    const std::optional<double> bad = badness(row);
    const auto range = ranges.find(contest_of(row));
    won.push_back(bad && *bad == range->second.least && range->second.least < range->second.most);
  }
  return won;
}

}  // namespace kvsim::analysis
