#pragma once
/// How far a cell's state is from the full cache's: what a replay cannot see, because it computes every query
/// from recorded states.
#include <cstddef>
#include <span>

#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

/// Means over the steps that predict a token of the answer.
struct LayerDrift {
  double residual_l2 = 0;      ///< |h' - h| / |h| of the residual stream after the layer
  double residual_cosine = 0;  ///< h'.h / (|h'| |h|)
  double query_l2 = 0;         ///< |q' - q| / |q| of the layer's queries, all heads together
};

class DriftMean {
 public:
  /// The queries of one step: [heads, head_dim] each.
  void add_queries(MatrixView full, MatrixView cell);
  /// The residual stream after the layer at the same step.
  void add_residual(std::span<const float> full, std::span<const float> cell);
  /// At least one step has been added.
  LayerDrift mean() const;

 private:
  LayerDrift sum_{};
  std::size_t steps_ = 0;
};

}  // namespace kvsim::sim
