#pragma once
/// Measures on every lane what allocation policies ask for before budgets are split: their profiles, and the
/// scores of the evictions they are combined with, or what oracles lose at every budget. One pass over the
/// prompt serves all cells.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/workers.hpp"
#include "sim/replay/plan.hpp"
#include "sim/replay/replay.hpp"

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

// Turns what an allocation decides on some runs into a form that applies to others: XKV's sampling (arXiv
// 2412.05896), for any allocation. Prompts differ in length, so an allocation that splits a given total is
// averaged as shares; one that also decides the total is averaged as tokens, as in the paper.

/// The tokens that a cell's allocation gives each lane.
struct AllocatedTokens {
  std::string skipped;                           ///< why the cell cannot run on this trace; empty: it can
  std::vector<std::vector<std::size_t>> tokens;  ///< [layers][KV heads]; empty when skipped
};

/// Returns one entry per cell of `request`; a lane that never evicts counts as the prompt. One pass over the
/// prompt serves all cells. Throws as replay() does.
std::vector<AllocatedTokens> allocated_tokens(const trace::Sequence& sequence, const Request& request,
                                              Progress& progress);

/// Returns [layers][KV heads]: the tokens of each lane above the eviction's floor, as a share of those of all
/// lanes (equal shares if there are none). An allocation that has its own total gives these tokens themselves
/// instead. A lane that never evicts counts as the prompt. `request` holds one cell. Throws as replay() does,
/// and Error(usage) with the reason when the cell cannot run on this trace.
std::vector<std::vector<double>> allocation_shares(const trace::Sequence& sequence, const Request& request,
                                                   Progress& progress);

/// Returns which of `n` runs are sampled: round(share * n), at least one, drawn by `seed`, in ascending
/// order. The sample of a larger share contains that of a smaller one.
std::vector<std::size_t> sampled_runs(std::size_t n, double share, std::uint64_t seed);

}  // namespace kvsim::sim
