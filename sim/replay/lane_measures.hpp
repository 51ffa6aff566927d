#pragma once
/// Measures what a lane's cells lose against the recorded run: the numbers of LaneOutcome.
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/attention/prompt_attention.hpp"
#include "sim/attention/resident_outputs.hpp"
#include "sim/attention/step_oracle.hpp"
#include "sim/replay/read_measures.hpp"
#include "sim/replay/replay.hpp"
#include "sim/replay/replay_unit.hpp"
#include "sim/replay/stored_measures.hpp"

namespace kvsim::sim {

// Measures what the heads of a layer together pass on to the model: attention outputs after the output
// projection, of the full cache and of every cell. Needs a trace with output weights.

/// Sums the projected outputs over all lanes of a layer, for one block of steps after another.
class ProjectedOutputs {
 public:
  /// `tensors` hold the layer's output weights. `cells`: where each cell's numbers of the layer go.
  ProjectedOutputs(const GroupTensors& tensors, std::vector<LayerOutcome*> cells);

  /// Begins a block of `n_steps` steps.
  void begin(std::size_t n_steps);
  /// Adds the outputs of a lane's query heads, [group * n_steps, value_dim], steps within heads: those of the
  /// full cache, or a cell's differences from them. Lanes are added in order.
  void add_whole(std::size_t lane, std::span<const float> outputs);
  void add_difference(std::size_t cell, std::size_t lane, std::span<const float> outputs);
  /// Ends the block after every lane is added: the errors and cosines of its steps go to the cells.
  void end();

 private:
  void add(std::size_t lane, std::span<const float> outputs, std::vector<float>& sum);

  const GroupTensors* tensors_;
  std::vector<LayerOutcome*> cells_;
  std::size_t n_steps_ = 0, hidden_;
  std::vector<float> whole_;                     ///< [n_steps, hidden]
  std::vector<std::vector<float>> differences_;  ///< per cell [n_steps, hidden]; empty while no lane differs
  std::vector<float> product_;
};

/// A cell's cache, and where the numbers of its lane go.
struct MeasuredCell {
  Cache* cache = nullptr;
  LaneOutcome* out = nullptr;
  std::size_t lane_of_unit = 0;  ///< the lane's number in the cache's unit
};
/// The cells of one lane, in the same order in every lane of a group.
using MeasuredCells = std::vector<MeasuredCell>;

/// Measures what is resident in each cell after the prompt: how many of these positions are in each segment,
/// their R, and the best R of any choice of as many positions. `segments`: of each prompt position. `w`:
/// importance of the lane's positions from `first` on (policies/parts/rows/window_rows.hpp); empty if
/// there is none.
void measure_kept(const std::vector<std::optional<PromptSegment>>& segments, const std::vector<double>& w,
                  std::size_t first, const MeasuredCells& cells);

/// What is the same for all lanes of a run.
struct MeasureRules {
  std::size_t prompt = 0;  ///< P
  std::size_t group = 1;   ///< query heads per lane
  PeakRule peak{};
  std::span<const policy::Position> evidence{};  ///< positions, ascending
  bool each_step = false;  ///< attention() also appends every step to LaneOutcome::each_step
};

/// Measures one lane, block after block of steps.
class LaneMeasures {
 public:
  /// `lane`: of the group that `tensors` were read for.
  LaneMeasures(const MeasureRules& rules, const GroupTensors& tensors, std::size_t lane, MeasuredCells cells);

  /// Adds the attention lost at one step, by each cell and by the best set of the cell's size. `attended` of
  /// the caches must be that of the step.
  void attention(const RowBlock& rows, std::size_t lane, std::size_t step_of_block);
  /// Adds how far the block's outputs are from the full cache's. `first_step`: of the block, as IndexStore
  /// counts steps. `values`: of the lane. Passes the outputs on to `projected` if it is not null.
  void outputs(const RowBlock& rows, std::size_t lane, std::uint32_t first_step, MatrixView values,
               ProjectedOutputs* projected);
  /// After the last block.
  void end();

 private:
  /// Adds the attention lost from the step's row, summed over query heads.
  void lost(std::size_t seen);
  void peaks(const RowBlock& rows, std::size_t lane, std::size_t s);
  void evidence(std::size_t seen);

  /// Records which evidence tokens and which prompt tokens each cell holds.
  void note_held();
  std::span<const policy::Position> seen_evidence(std::size_t seen) const;
  /// Adds how far the outputs of the block's `n` steps, [n][group][dim], are from the full cache's, and sets
  /// difference_ to the difference. `read`: whose outputs they are; null: of what is stored.
  void computed_outputs(std::span<const float> computed, const ReadMeasures* read, std::size_t cell,
                        std::size_t n, std::size_t dim);
  /// Returns what a full cache holds of `n` tokens.
  std::size_t whole(std::size_t n) const {
    return held_tokens(tensors_->sequence().model(), tensors_->group().layer, n);
  }
  bool is_exact(std::size_t cell) const { return !stored_[cell] && !read_[cell]; }

  const MeasureRules& rules_;
  const GroupTensors* tensors_;
  MeasuredCells cells_;  ///< all of them
  MeasuredCells exact_;  ///< those that attend recorded numbers, and all of them
  std::vector<std::optional<StoredMeasures>> stored_;  ///< per cell of cells_
  std::vector<std::optional<ReadMeasures>> read_;      ///< per cell of cells_
  bool compares_rows_ = false;                         ///< some cell has either
  bool attends_recorded_ = false;                      ///< some cell has no representation
  RecordedStep recorded_;
  // Per cell of cells_; of those with a representation they are not used.
  std::vector<std::vector<std::size_t>> n_attended_;  ///< [steps of the block]: positions attended
  std::vector<std::vector<float>> peak_dropped_;      ///< [group * steps]: peak attention that is lost
  // Scratch.
  std::vector<float> mean_row_, selection_, by_position_, difference_;
  double total_ = 0;  ///< sum of mean_row_
  std::vector<std::size_t> counts_;
  std::vector<LargestEntries> best_;
  std::vector<ResidentInterval> intervals_;
  ResidentOutputs resident_outputs_;
  Peak peak_;
};

}  // namespace kvsim::sim
