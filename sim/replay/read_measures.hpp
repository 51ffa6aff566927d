#pragma once
/// Measures a lane of a cell with a selection: what its query heads read, and what they lose by it.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/replay/recorded_step.hpp"
#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

class ReadMeasures {
 public:
  /// `lane`: of the group that `tensors` were read for; `lane_of_unit`: the same lane in the cache's unit.
  ReadMeasures(const GroupTensors& tensors, std::size_t lane, std::size_t lane_of_unit, Cache& cache,
               LaneOutcome& out);

  /// The queries of the step have chosen. The cache is that of the step.
  void step(const RecordedStep& recorded);
  /// Where numbers are stored as they come: adds the attention that is lost at the step, and appends the
  /// outputs. `evidence`: positions that the step sees. After step().
  void attend(const RecordedStep& recorded, std::span<const policy::Position> evidence, bool each_step);
  /// Adds to the latest of LaneOutcome::each_step what the step has read.
  void note_step();
  /// After the last step.
  void end();

  /// Whether a query head has read a position at the latest step.
  bool reads(std::size_t g, std::size_t position) const { return marks_[g * seen_ + position] != 0; }
  /// Whether it has read everything that the layer sees.
  bool reads_all(std::size_t g) const { return columns(g).size() == whole_; }
  /// What the steps since the last clear() gave: [steps][group][value_dim].
  std::span<const float> outputs() const { return outputs_; }
  /// [steps][group]: whether the head has read everything, so that its output is the full cache's.
  std::span<const std::uint8_t> everything() const { return everything_; }
  /// [steps][group]: the share of the head's row that is paid to what it has not read.
  std::span<const float> unread() const { return unread_; }
  void clear() {
    outputs_.clear();
    everything_.clear();
    unread_.clear();
  }

 private:
  std::span<const std::size_t> columns(std::size_t g) const {
    return cache_->reads->of(lane_of_unit_ * group_ + g);
  }
  /// What a head that does not read everything has of the recorded row.
  struct Retained {
    double sum = 0, squares = 0;
    double shared =
        0;  ///< sum of the squares of those that are among the row's largest entries, as many as it reads
    std::size_t among_largest = 0;  ///< how many these are
  };
  Retained retained(const RecordedStep& recorded, std::size_t g) const;

  const GroupTensors* tensors_;
  std::size_t lane_, lane_of_unit_, group_;
  Cache* cache_;
  LaneOutcome* out_;
  std::size_t seen_ = 0, whole_ = 0;              ///< positions so far; those that the layer sees
  std::vector<std::uint8_t> marks_, everything_;  ///< marks: [group][seen]
  std::vector<float> outputs_, unread_;
  std::vector<Retained> retained_;  ///< [group], of the latest step
  StepOutcome latest_{};
};

}  // namespace kvsim::sim
