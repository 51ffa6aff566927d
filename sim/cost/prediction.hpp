#pragma once
/// The first token where a small model reads the prompt, and linear maps make the large model's cache of its
/// (Horton et al. 2024, "KV Prediction for Improved Time to First Token").
#include "sim/cost/latency.hpp"

namespace kvsim::cost {

struct PredictionTime {
  double flops = 0,
         full_flops = 0;  ///< of the batch on one device, to the first token; of the large model alone
  double small = 0, maps = 0, last = 0;  ///< s: the small model, the maps, the large model's last token
  double first_token() const { return small + maps + last; }
};

/// The small model reads all tokens of a prompt but the last; of each layer of the large one a matrix makes
/// the keys, and another the values, of a layer of the small one; the large one computes the last token on
/// them. `small_serving` is `serving` as the small model has it. Throws Error(usage) where a model has layers
/// without keys and values, or latents.
PredictionTime prediction_time(const Model& model, const Serving& serving, const Model& small,
                               const Serving& small_serving, const Machine& machine);

}  // namespace kvsim::cost
