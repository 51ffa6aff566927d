#pragma once
/// Measures on every lane what allocation policies ask for before budgets are split: their profiles, and the
/// scores of the evictions they are combined with, or what oracles lose at every budget. One pass over the
/// prompt serves all cells.
#include <map>
#include <string>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {

class AllocationPass {
  using PerLane = std::vector<std::vector<double>>;

 public:
  /// Covers the cells of `plan` that are not skipped. Computes nothing yet.
  AllocationPass(const trace::Sequence& sequence, const Request& request, const Plan& plan);

  /// Returns the query rows that run() computes.
  std::uint64_t work() const;
  void run(Workers& workers, Progress& progress);

  /// Per lane, layer-major; empty if no cell asks for the profile (the scores) of the part.
  PerLane profiles(const policy::Part& allocation) const { return values_of(profiled_, allocation); }
  PerLane scores(const policy::Part& eviction) const { return values_of(scored_, eviction); }
  /// Per lane, layer-major: Oracle::losses() of the lane's unit, at every budget; empty if no cell asks for
  /// them.
  PerLane losses(const policy::Part& oracle) const { return values_of(of_oracles_, oracle); }

 private:
  struct Profiled {
    const policy::Part* part = nullptr;
    RowRequirement requirement;
    PerLane values;
  };
  struct OfEviction {
    const EvictionGroup* eviction_group = nullptr;
    PerLane values;
  };
  template <class Measured>
  static PerLane values_of(const std::map<std::string, Measured>& measured, const policy::Part& part) {
    const auto found = measured.find(part.text());
    return found == measured.end() ? PerLane{} : found->second.values;
  }
  void run_group(LaneGroup group, Progress& progress);
  std::vector<LaneGroup> groups() const;
  bool empty() const { return profiled_.empty() && scored_.empty() && of_oracles_.empty(); }
  std::size_t most_rows() const;

  const trace::Sequence* sequence_;
  const Request* request_;
  bool layer_groups_ = false;
  policy::Needs needs_;
  std::map<std::string, Profiled> profiled_;  // key: the part's text
  std::map<std::string, OfEviction> scored_, of_oracles_;
};

}  // namespace kvsim::sim
