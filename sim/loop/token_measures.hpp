#pragma once
/// What a cell predicts at one step, compared with what the full cache predicts there.
#include <cstdint>
#include <span>

namespace kvsim::sim {

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

}  // namespace kvsim::sim
