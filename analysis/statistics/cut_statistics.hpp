#pragma once
/// Means, differences and ranks at one cut.
#include <string>

#include "analysis/statistics/statistics.hpp"
#include "analysis/statistics/trace_values.hpp"

namespace kvsim::analysis {

/// `options` have been checked.
Statistics cut_statistics(const TraceValues& study, const StatisticsOptions& options, const std::string& cut);

}  // namespace kvsim::analysis
