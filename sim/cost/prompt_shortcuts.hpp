#pragma once
/// The first token where the prompt is not simply read: its cache is put together, or made from a small
/// model's.
#include <cstdint>
#include <optional>

#include "sim/cost/latency.hpp"

namespace kvsim::cost {

/// Seconds of a prompt that is put together of documents whose keys and values are there: what is computed,
/// what is loaded, and the first token.
struct AssemblyTime {
  std::uint64_t computed = 0;  ///< tokens of each prompt that go through the layers, the last one at least
  std::uint64_t bytes = 0;     ///< keys and values of the others, of the batch, that reach one device
  double compute = 0;          ///< s of the batch's prompts, up to the first token
  double load = 0;             ///< s in which these bytes cross the links; 0: they are on the device
  /// s: a layer is loaded while the one before is computed, so that the longer of both counts, and of the
  /// other one layer.
  double first_token = 0;
};

/// `computed`: of a prompt's tokens in all layers, the share that is computed (`computed` of kvsim evaluate
/// --prefill); they stand anywhere in it, so that each attends half of the prompt in the mean. `from`: where
/// the documents lie; none: on the device. Throws Error(usage) for a share outside [0, 1], and for a tier
/// that the machine has no link to.
AssemblyTime assembly_time(const Model& model, const Machine& machine, const Serving& serving,
                           double computed, std::optional<Tier> from);

/// The first token where a small model reads the prompt, and linear maps make the large model's cache of its
/// (Horton et al. 2024, "KV Prediction for Improved Time to First Token").
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
