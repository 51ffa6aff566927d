#pragma once
/// Bootstrap over traces, and over the seeds of each: resamples drawn once, means of any values on them.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace kvsim::analysis {

/// Which traces take part, one entry per trace.
using TraceSet = std::vector<bool>;

struct Interval {
  double low = 0, high = 0;
};

/// Draw k of resample r within a workload is a pure function of (seed, workload, r, k) and of how many of its
/// traces take part: the same on any machine, for every metric, budget and policy. Of a trace that was run
/// with several seeds each draw draws as many of its seeds, so that luck is part of what varies (two stages:
/// Davison and Hinkley 1997, Bootstrap Methods and their Application, 3.8).
class Resamples {
 public:
  /// `workloads`: of each trace; equal ones stand together. `runs`: seeds that each trace was run with.
  Resamples(std::vector<std::string> workloads, std::uint64_t resamples, std::uint64_t seed,
            std::size_t runs = 1)
      : workloads_(std::move(workloads)), resamples_(resamples), runs_(runs), seed_(seed) {}

  std::size_t size() const { return resamples_; }
  /// At least two traces of every workload in the set: nothing else tells how much that workload varies.
  bool has_intervals(const TraceSet& set) const;
  /// Mean of `values` (`runs` of each trace in turn, those outside the set ignored) on every resample of the
  /// set.
  std::vector<double> means(const TraceSet& set, std::span<const double> values);

 private:
  const std::vector<double>& counts_of(const TraceSet& set);

  std::vector<std::string> workloads_;
  std::size_t resamples_, runs_;
  std::uint64_t seed_;
  std::map<TraceSet, std::vector<double>> counts_;  ///< [trace][run][resample]: how often it was drawn
};

/// Percentile interval that leaves out (1 - confidence) / 2 of `samples` on each side; between two of them,
/// linear interpolation. Reorders `samples`.
Interval percentile_interval(std::span<double> samples, double confidence);

}  // namespace kvsim::analysis
