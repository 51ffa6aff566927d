#pragma once
/// What a layer's heads together give the model: attention outputs after the output projection, of the full
/// cache and of every cell. Only where a trace stores output weights.
#include <cstddef>
#include <span>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// Of one block of steps after another, over all lanes of a layer.
class ProjectedOutputs {
 public:
  /// `tensors` hold the layer's output weights. `cells`: where each cell's numbers of the layer go.
  ProjectedOutputs(const GroupTensors& tensors, std::vector<LayerOutcome*> cells);

  /// A block of `n_steps` steps begins.
  void begin(std::size_t n_steps);
  /// Outputs of a lane's query heads, [group * n_steps, value_dim], steps within heads: the full cache's, and
  /// what a cell's differ from them. Lanes come in order.
  void add_whole(std::size_t lane, std::span<const float> outputs);
  void add_difference(std::size_t cell, std::size_t lane, std::span<const float> outputs);
  /// Every lane has been added: errors and cosines of the block's steps go to the cells.
  void end();

 private:
  void add(std::size_t lane, std::span<const float> outputs, std::vector<float>& sum);

  const GroupTensors* tensors_;
  std::vector<LayerOutcome*> cells_;
  std::size_t n_steps_ = 0, hidden_;
  std::vector<float> whole_;                     ///< [n_steps, hidden]
  std::vector<std::vector<float>> differences_;  ///< per cell; empty: none so far
  std::vector<float> product_;
};

}  // namespace kvsim::sim
