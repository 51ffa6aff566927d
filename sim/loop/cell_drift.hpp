#pragma once
/// How far a cell is from the full cache: what it predicts at a step, and its state, which a replay cannot
/// see, because it computes every query from recorded states.
#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/base/matrix_view.hpp"

namespace kvsim::sim {

/// What a cell predicts at one step, compared with what the full cache predicts there.
struct TokenMeasures {
  double kl = 0;           ///< KL(full || cell), nats, over the vocabulary
  double log_p = 0;        ///< natural logarithm of the cell's probability of the token
  double log_p_full = 0;   ///< of the full cache's
  std::uint64_t rank = 0;  ///< tokens that the cell finds more probable than the token
  bool same_top = true;    ///< both find the same token most probable
};

/// Both logits are [vocabulary] and finite. `token`: the one that follows in the reference. Equal logits give
/// a KL of exactly 0.
TokenMeasures measure_token(std::span<const float> full, std::span<const float> cell, std::int32_t token);

/// How far the most probable token's logit lies above the next.
double margin(std::span<const float> logits);

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
