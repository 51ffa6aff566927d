#include "analysis/statistics/statistics_notes.hpp"

#include "analysis/statistics/statistics.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

void note_lengths(std::vector<std::string>& notes, const TraceValues& study,
                  const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const auto [shortest, longest] = prompts_of(group.traces, study.traces());
    if (alike_lengths(shortest, longest)) continue;
    notes.push_back("Workload " + group.workload + " pools prompts of " + std::to_string(shortest) + " to " +
                    std::to_string(longest) +
                    " tokens: a budget in tokens or bytes is another share of each.");
  }
}

void note_sizes(std::vector<std::string>& notes, const Resamples& resamples,
                const std::vector<Group>& groups) {
  constexpr std::uint64_t kRough = 5;
  std::vector<std::string> single, rough;
  for (const Group& group : groups) {
    const std::uint64_t n = members(group.traces);
    if (n < kRough) rough.push_back(group.workload + " (" + std::to_string(n) + ")");
    if (!resamples.has_intervals(group.traces)) single.push_back(group.workload);
  }
  if (!single.empty())
    notes.push_back("No interval for " + joined(single) +
                    ": with a single trace of a workload nothing tells how much it varies.");
  if (!rough.empty())
    notes.push_back("Intervals from fewer than " + std::to_string(kRough) +
                    " traces are rough, and rather too narrow: " + joined(rough) + ".");
}

void note_unranked(std::vector<std::string>& notes, const TraceValues& study, const Unranked& unranked) {
  for (const std::string& budget : study.budgets()) {
    const auto found = unranked.find(budget);
    if (found == unranked.end()) continue;
    std::map<std::vector<std::string>, std::vector<std::string>> policies_by_metrics;
    for (const auto& [policy, metrics] : found->second)
      policies_by_metrics[{metrics.begin(), metrics.end()}].push_back(policy);
    for (const auto& [metrics, policies] : policies_by_metrics)
      notes.push_back("Not ranked at " + budget + " by " + joined(metrics) +
                      ", for want of a value in some trace where others have one: " + joined(policies) + ".");
  }
}

}  // namespace

std::vector<std::string> statistics_notes(const TraceValues& study, const std::vector<Group>& groups,
                                          const Resamples& resamples, const Unranked& unranked) {
  std::vector<std::string> notes;
  note_lengths(notes, study, groups);
  note_sizes(notes, resamples, groups);
  note_unranked(notes, study, unranked);
  return notes;
}

}  // namespace kvsim::analysis
