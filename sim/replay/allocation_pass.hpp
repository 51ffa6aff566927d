#pragma once
/// What allocation policies measure on every lane before budgets are split: their profiles, and the scores of
/// the evictions they are combined with, or what oracles lose at every budget. One pass over the prompt
/// serves all of them.
#include <map>
#include <string>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {

class AllocationPass {
 public:
  /// Of the cells of `plan` that are not skipped. Nothing is computed yet.
  AllocationPass(const trace::Sequence& sequence, const Request& request, const Plan& plan);

  /// Query rows that run() computes.
  std::uint64_t work() const;
  void run(Workers& workers, Progress& progress);

  /// Per lane, layer-major; empty if the part measures (scores) nothing.
  std::vector<std::vector<double>> profiles(const policy::Part& allocation) const;
  std::vector<std::vector<double>> scores(const policy::Part& eviction) const;
  /// Of an oracle, at every budget: Oracle::losses() of the lane's unit.
  std::vector<std::vector<double>> losses(const policy::Part& oracle) const;

 private:
  using PerLane = std::vector<std::vector<double>>;
  struct Profiled {
    const policy::Part* part = nullptr;
    RowRequirement requirement;
    PerLane values;
  };
  struct OfEviction {
    const EvictionGroup* eviction_group = nullptr;
    PerLane values;
  };
  void run_group(LaneGroup group, Progress& progress);
  std::vector<LaneGroup> groups() const;
  bool empty() const { return profiled_.empty() && scored_.empty() && of_oracles_.empty(); }
  std::size_t most_rows() const;

  const trace::Sequence* sequence_;
  const Request* request_;
  bool layer_groups_ = false;
  policy::Needs needs_;
  std::map<std::string, Profiled> profiled_;  // by the part's text
  std::map<std::string, OfEviction> scored_, of_oracles_;
};

}  // namespace kvsim::sim
