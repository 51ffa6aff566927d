#include "analysis/statistics/trace_groups.hpp"

#include <algorithm>
#include <set>

namespace kvsim::analysis {

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
