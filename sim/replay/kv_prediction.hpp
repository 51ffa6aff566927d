#pragma once
/// The cache of a large model predicted from that of a small one, which has read the prompt in its place
/// (Horton et al. 2024, "KV Prediction for Improved Time to First Token", 3.1): of each layer the keys, and
/// the values, are a linear map with a bias of those of a layer of the small model, all heads together. The
/// paper trains the maps with the small model; here they are fitted to recorded runs by least squares, the
/// best that linear maps of a given small model can do on these.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "sim/replay/calibration_tables.hpp"

namespace kvsim::sim {

/// The same prompt, read by both models.
struct PredictionRun {
  std::string name, small_name;
  const trace::Sequence* large = nullptr;
  const trace::Sequence* small = nullptr;
};

/// The small model's layer for each of `large`: the first large - small of them serve two layers each, as in
/// the paper's models (16 layers for 28: 0 0 1 1 ... 11 11 12 13 14 15); with more than twice as many, or
/// fewer, they are spread evenly.
std::vector<std::size_t> prediction_layers(std::size_t large, std::size_t small);

/// Least squares over the prompts' tokens, of keys before rotation: mean over tokens of |y - W x - b|^2, plus
/// `ridge` |W|^2. `from`: the small model's layer for each of the large one's. Tables `keys` and `values`:
/// per KV head [numbers of a token in the small layer + 1, head_dim], the bias last. Throws Error(usage)
/// where the runs do not suit each other, or, without ridge, have no more tokens than a token has numbers.
Calibration fit_prediction(std::span<const PredictionRun> runs, std::span<const std::size_t> from,
                           double ridge, Progress& progress);

/// What maps make of a prompt.
struct PredictedLayer {
  std::vector<float> keys, values;  ///< [KV heads, tokens, dim], keys as they are rotated
  /// |predicted - recorded| / |recorded|, Frobenius, over all tokens but the last, whose keys and values the
  /// large model makes itself.
  double key_error = 0, value_error = 0;
};

/// Returns the small model's layer for each of the large one's. Throws Error(usage) where maps are not of
/// these models, or the run was one of those they were fitted to; Error(input) where the two prompts have
/// different tokens.
std::vector<std::size_t> check_prediction(const Calibration& maps, const PredictionRun& run);

/// Layer `layer` of the run's large model, from this one of the small one. Its last token is as recorded.
PredictedLayer predict_layer(const Calibration& maps, const PredictionRun& run, std::uint32_t layer,
                             std::size_t from);

}  // namespace kvsim::sim
