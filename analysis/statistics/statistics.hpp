#pragma once
/// What results over many traces say: means with intervals, paired differences,
/// ranks and their stability. Traces are the units: seeds of one trace are
/// averaged first, and intervals tell how the numbers would vary with other
/// traces of the same workloads (percentile bootstrap, Efron 1979; traces drawn
/// anew within each workload). Every policy, metric and budget sees the same
/// resampled traces, so differences are paired. Each cut has rows of its own.
/// How means, intervals and ranks are made: analysis/results/METRICS.md.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/results/document.hpp"
#include "analysis/results/metrics/metric.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/trace_values.hpp"

namespace kvsim::analysis {

struct StatisticsOptions {
  std::vector<std::string> metrics{};  ///< keys; empty: all
  std::uint64_t resamples = 2000;      ///< 100 to 100000
  std::uint64_t seed = 0;
  double confidence = 0.95;                   ///< of intervals: 0.5 to 0.999
  bool differences_within_workloads = false;  ///< besides those over all traces: many rows
};

struct Statistics {
  Records means, differences, ranks;
  std::vector<std::string> notes;  ///< what people must know to read them
};

/// From rows like those of records_of(), of which only scope `all` counts.
/// `traces`: lengths, by name and cut; those without a cut are of every cut.
/// The numbers do not depend on the order of rows; those of a policy not on the
/// other policies, but for ranks. Throws Error(usage) for options out of range
/// or an unknown metric, Error(input) for rows that contradict each other
/// (twice the same, a trace of two workloads), Error(bug) for a trace without
/// lengths.
Statistics statistics_of(const Records& results, const std::vector<TraceId>& traces,
                         const StatisticsOptions& options = {});

/// The same of these metrics, which may be others than metrics(): each is a column of `results`.
Statistics statistics_of(const Records& results, const std::vector<TraceId>& traces,
                         const StatisticsOptions& options, const std::vector<const Metric*>& metrics);

/// Whether prompts are of one length but for a word: within 1 %, or two tokens. Others are not pooled in
/// silence.
bool alike_lengths(std::uint64_t shortest, std::uint64_t longest);

/// The tables without rows: their columns.
Statistics empty_statistics();

}  // namespace kvsim::analysis
