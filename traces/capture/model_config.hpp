#pragma once
/// config.json of the Llama family. Old files lack newer fields, and what a missing one means is its model
/// class's business: each default is stated at its field. What kvsim does not compute is refused by name,
/// never ignored.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvsim::capture {

/// Rotary position embedding: component i turns with component i + head_dim/2 by position * inv_freq[i].
struct RopeConfig {
  std::string type = "default";  ///< default | linear | llama3
  double theta = 10000.0;
  double factor = 1.0;                               ///< linear, llama3
  double low_freq_factor = 1, high_freq_factor = 1;  ///< llama3
  double original_max_positions = 0;                 ///< llama3
};

struct ModelConfig {
  std::string model_type;    ///< llama | mistral | qwen2 | qwen3
  std::string architecture;  ///< architectures[0], or empty
  std::uint32_t n_layers = 0, hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;  ///< absent: n_heads
  std::uint32_t head_dim = 0;    ///< absent: hidden_size / n_heads
  std::uint64_t max_positions = 0;
  double norm_eps = 1e-6;
  bool qkv_bias = false;                ///< llama, qwen3: attention_bias; qwen2: always
  bool output_bias = false;             ///< llama, qwen3: attention_bias
  bool mlp_bias = false;                ///< llama
  bool qk_norm = false;                 ///< qwen3: RMSNorm over each head of q and k, before RoPE
  std::optional<bool> tied_embeddings;  ///< absent: tied exactly when the checkpoint has no lm_head
  RopeConfig rope;
  std::vector<std::int32_t>
      layer_window;  ///< [n_layers]; -1: full attention, else key j is seen by t iff t-W < j <= t
  std::vector<std::int32_t> eos;  ///< ids that end generation; may be empty
  std::string json;               ///< config.json as it was
};

/// Throws Error(input) naming the field.
ModelConfig parse_model_config(const std::string& json, const std::string& path);
/// Reads DIR/config.json, and the eos ids of DIR/generation_config.json when there is one.
ModelConfig load_model_config(const std::string& directory);

/// Model types that load, in alphabetical order.
const std::vector<std::string>& supported_model_types();

/// [head_dim/2] frequencies after scaling, computed in float as the reference implementations do.
/// "linear": f / factor (Chen et al. 2023, position interpolation). "llama3": long wavelengths are divided by
/// `factor`, short ones kept, those between blended (Llama 3.1).
std::vector<float> rope_frequencies(const RopeConfig& rope, std::uint32_t head_dim);

}  // namespace kvsim::capture
