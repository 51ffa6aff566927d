#pragma once
/// Measures what the heads of a layer together pass on to the model: attention outputs after the output
/// projection, of the full cache and of every cell. Needs a trace with output weights.
#include <cstddef>
#include <span>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

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

}  // namespace kvsim::sim
