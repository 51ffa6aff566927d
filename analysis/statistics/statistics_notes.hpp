#pragma once
/// What people must know to read the statistics of a cut.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/trace_groups.hpp"
#include "analysis/statistics/trace_values.hpp"

namespace kvsim::analysis {

/// Metrics by budget and policy.
using Unranked = std::map<std::string, std::map<std::string, std::set<std::string>>>;

/// Groups of prompts of unlike lengths, groups with few traces, and policies without a rank, in this order.
std::vector<std::string> statistics_notes(const TraceValues& study, const std::vector<Group>& groups,
                                          const Resamples& resamples, const Unranked& unranked);

}  // namespace kvsim::analysis
