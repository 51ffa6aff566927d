#pragma once
/// Rotary position embedding as config.json describes it: which components rotate, at which frequencies, and
/// how context extension changes them.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

inline constexpr std::uint64_t kMaxPositions = 1ULL << 24;
/// What to do with a model that the runner does not have.
inline constexpr const char* kElsewhere = "Capture this model with another tool and convert its trace.";

/// Components i and i + rotary_dim/2, or 2i and 2i + 1, rotate by the angle position * frequency[i];
/// components beyond rotary_dim do not rotate.
struct RopeConfig {
  std::string type = "default";  ///< default | linear | llama3 | yarn | longrope; none: frequencies are 0
  double theta = 10000.0;
  std::uint32_t rotary_dim = 0;  ///< even; head_dim unless a model rotates only part of a head
  /// Factor on cosines and sines, so stored queries and keys both include it (yarn, longrope).
  double attention_factor = 1.0;
  double factor = 1.0;                               ///< linear, llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 1;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn: turns within the original context
  bool truncate = true;                              ///< yarn: the ramp starts and ends at whole pairs
  double all_temperature = 1;  ///< yarn: by mscale_all_dim; DeepSeek multiplies q.k by its square
  std::uint64_t original_max_positions = 0;           ///< llama3, yarn, longrope
  std::vector<double> short_factor{}, long_factor{};  ///< longrope: [rotary_dim/2]

  bool operator==(const RopeConfig&) const = default;
};

/// The fields of the rest of config.json that read_rope() needs.
struct RopeContext {
  std::string model_type;
  std::uint32_t head_dim = 0;
  std::uint64_t max_positions = 0;
  double theta = 1e4, window_theta = 0, partial_rotary = 0;  ///< those of the Family
};

/// Reads rope_theta and rope_scaling at the top level (most files) or one rope_parameters object
/// (transformers 5), with partial_rotary_factor and original_max_position_embeddings in either place. Throws
/// Error(input).
RopeConfig read_rope(const JsonObject& config, const RopeContext& context);

/// The rotations of full layers and of layers with a window where these are two (Gemma 3, OLMo 3):
/// rope_parameters has an object of each kind, or rope_local_base_freq or the same rope_theta is that of
/// windows, which are not scaled.
std::pair<RopeConfig, RopeConfig> read_two_ropes(const JsonObject& config, const RopeContext& context);

/// Frequencies [rotary_dim/2] of a run that reaches `positions` positions, computed in float as the reference
/// implementation does. Only longrope depends on `positions`: the whole run uses short factors up to
/// original_max_positions, long factors beyond.
///
/// "linear": f / factor (Chen et al. 2023, "Extending Context Window of Large Language Models via Positional
/// Interpolation"). "llama3": the frequencies of long wavelengths are divided by `factor`, those of short
/// ones kept, those between blended (Llama 3.1). "yarn": the same by the number of turns, blended pair by
/// pair (Peng et al. 2023, "YaRN", section 3.2). "longrope": each pair has its own divisor (Ding et al. 2024,
/// "LongRoPE").
std::vector<float> rope_frequencies(const RopeConfig& rope, std::uint64_t positions);

/// Cosines and sines of positions [first, first + n), each [n, pairs] and multiplied by `attention_factor`.
struct RopeTable {
  std::uint64_t pairs = 0;  ///< pairs of components (i, i + pairs) that rotate; the other components do not
  std::vector<float> cosine, sine;
};
RopeTable rope_table(std::span<const float> frequencies, double attention_factor, std::uint64_t first,
                     std::uint64_t n);

/// Throws Error(usage) when a run of `prompt` tokens that may grow to `positions` would cross from short to
/// long longrope factors: keys of two rotations cannot share a cache.
void check_rope_regime(const RopeConfig& rope, std::uint64_t prompt, std::uint64_t positions);

}  // namespace kvsim::model
