#pragma once
/// Measures a lane of a cell with a representation: attention over what its codec has stored, beside the
/// recorded row over everything.
#include <vector>

#include "sim/attention/stored_attention.hpp"
#include "sim/replay/recorded_step.hpp"
#include "sim/replay/replay_unit.hpp"

namespace kvsim::sim {

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
  /// Of what the unit takes.
  double lane_part(std::uint64_t bits) const;
  void compare(const RecordedStep& recorded, std::size_t g, std::span<const float> weights);

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
