#pragma once
/// Sets of a study's traces.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/statistics/resamples.hpp"
#include "analysis/statistics/trace_values.hpp"

namespace kvsim::analysis {

/// Traces that are pooled into one number.
struct Group {
  std::string workload;
  TraceSet traces;
};
/// All of them, called "all"; with several workloads one more group per workload that is known.
std::vector<Group> groups_of(const std::vector<TraceValues::Trace>& traces);

/// Of sets of equal length.
TraceSet both(const TraceSet& a, const TraceSet& b);
/// How many traces are in it.
std::uint64_t members(const TraceSet& set);
/// Mean of the values of its members; `values`: one per trace of the study.
double mean_over(const TraceSet& set, std::span<const double> values);
/// Shortest and longest prompt of its members, in tokens.
std::pair<std::uint64_t, std::uint64_t> prompts_of(const TraceSet& set,
                                                   const std::vector<TraceValues::Trace>& traces);

}  // namespace kvsim::analysis
