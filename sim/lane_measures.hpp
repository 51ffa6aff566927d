#pragma once
/// What a lane's cells lose, measured against the recorded run: the numbers of LaneOutcome.
#include <functional>
#include <vector>

#include "sim/cached_unit.hpp"
#include "sim/held_outputs.hpp"
#include "sim/step_oracle.hpp"

namespace kvsim::sim {

/// A cell and where its lane's numbers go.
struct MeasuredCell {
  UnitCell* cell = nullptr;
  LaneOutcome* out = nullptr;
};
/// Cells of one family in one lane.
using MeasuredFamily = std::vector<MeasuredCell>;

/// R of what each cell holds after the prompt, and the best that any choice of as many positions could reach.
/// `w`: importance of the lane's positions (policies/parts/window_importance.hpp); empty if there is none.
void measure_importance(const std::vector<double>& w, const std::vector<MeasuredFamily>& families);

class LaneMeasures {
 public:
  /// `each_step`: attention() appends every step by itself, too.
  explicit LaneMeasures(bool each_step) : each_step_(each_step) {}
  /// Attention lost at one step, and by the best set of each cell's size. UnitCell::held of the step counts.
  void attention(const RowBlock& rows, std::size_t lane, std::size_t step_of_block,
                 const std::vector<MeasuredFamily>& families);
  /// What the block's outputs lose: o - sum over held positions of a v, against o. `first_step`: of the
  /// block, as ResidentSet counts them. `values`: the lane's.
  void outputs(const RowBlock& rows, std::size_t lane, std::uint32_t first_step, MatrixView values,
               const std::vector<MeasuredFamily>& families);

 private:
  double relative_error(const std::vector<float>& kept, std::size_t offset, std::size_t dim) const;

  const bool each_step_;
  // Scratch.
  std::vector<float> mean_row_, selection_, by_position_, output_;
  std::vector<std::size_t> counts_;
  std::vector<LargestEntries> best_;
  std::vector<MeasuredCell> dropping_;
  std::vector<std::span<const Residency>> stays_;
  std::vector<std::vector<float>> kept_output_;
  HeldOutputs held_outputs_;
};

}  // namespace kvsim::sim
