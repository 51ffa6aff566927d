#pragma once
/// Measures a lane of a cell with a representation: attention over what its codec has stored, beside the
/// recorded row over everything.
#include <vector>

#include "sim/attention/stored_attention.hpp"
#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

/// The largest entries of a row; of equal ones the first.
class TopEntries {
 public:
  /// The numbers of the min(size, kTopTokens) largest entries, in no order. Valid until the next call.
  std::span<const std::size_t> of(std::span<const float> row);

 private:
  std::vector<float> heap_;
  std::vector<std::size_t> top_;
};

/// The rows of one step of a lane that all its cells are compared with.
class RecordedStep {
 public:
  RecordedStep(const GroupTensors& tensors, std::size_t lane) : tensors_(&tensors), lane_(lane) {}
  void set(const RowBlock& rows, std::size_t step_of_block);

  std::size_t position() const { return seen_ - 1; }
  std::size_t group() const { return group_; }
  std::span<const float> row(std::size_t g) const { return {rows_->row(lane_, g, step_), seen_}; }
  std::span<const float> query(std::size_t g) const { return rows_->query(lane_, g, step_); }
  /// The logit of a position over the recorded key, through the kernel of StoredAttention: computed once for
  /// all cells, when the first one asks.
  float logit(std::size_t g, std::size_t position) const;
  /// The positions of the kTopTokens largest entries of the row, or of all of them, ascending.
  std::span<const policy::Position> top(std::size_t g) const { return top_[g]; }

 private:
  const GroupTensors* tensors_;
  std::size_t lane_;
  const RowBlock* rows_ = nullptr;
  std::size_t step_ = 0, seen_ = 0, group_ = 0;
  std::vector<float> scaled_;          ///< [group][dim]: scale * query
  mutable std::vector<float> logits_;  ///< [group][seen]; not a number where no cell has asked
  std::vector<std::vector<policy::Position>> top_;
};

class StoredMeasures {
 public:
  /// `lane`: of the group that `tensors` were read for; `lane_of_unit`: the same lane in the cache's unit.
  StoredMeasures(const GroupTensors& tensors, std::size_t lane, std::size_t lane_of_unit, Cache& cache,
                 LaneOutcome& out);

  /// The queries of the step attend. The cache is that of the step.
  void step(const RecordedStep& recorded, bool each_step);
  /// After the last step.
  void end();
  /// What the steps since the last clear() gave: [steps][group][value_dim].
  std::span<const float> outputs() const { return outputs_; }
  void clear() { outputs_.clear(); }

 private:
  double lane_bits() const;
  void compare(const RecordedStep& recorded, std::size_t g, std::span<const float> weights,
               policy::Position first_seen);

  const GroupTensors* tensors_;
  std::size_t lane_, lane_of_unit_;
  Cache* cache_;
  LaneOutcome* out_;
  StoredAttention attention_;
  std::vector<float> outputs_;
  double variation_ = 0, overlap_ = 0;  ///< of the present step, summed over query heads
  TopEntries top_;
};

}  // namespace kvsim::sim
