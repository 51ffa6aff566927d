#pragma once
/// Reads config.json of the Llama family. Files omit fields for which their model's class has a default, and
/// every class has its own defaults: those of transformers 5.23 apply (null differs from absence where the
/// class distinguishes them). A feature that kvsim does not compute is refused by name, never ignored.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/model/rope.hpp"

namespace kvsim::model {

struct ModelConfig {
  std::string model_type;    ///< llama | mistral | phi3 | qwen2 | qwen3
  std::string architecture;  ///< architectures[0], or empty
  std::uint32_t n_layers = 0, hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint64_t max_positions = 0;
  double norm_eps = 1e-6;
  bool qkv_bias = false;                ///< llama, qwen3: attention_bias; qwen2: always
  bool output_bias = false;             ///< llama, qwen3: attention_bias
  bool mlp_bias = false;                ///< llama
  bool qk_norm = false;                 ///< qwen3: RMSNorm over each head of q and k, before RoPE
  bool fused_projections = false;       ///< phi3: q, k and v are rows of one tensor, gate and up of another
  std::optional<bool> tied_embeddings;  ///< if absent, tied exactly when the checkpoint has no lm_head
  RopeConfig rope;
  std::vector<std::int32_t>
      layer_window;  ///< [n_layers]; -1: full attention, else key j is seen by t iff t-W < j <= t
  std::vector<std::int32_t> eos;  ///< ids that end generation; may be empty
  std::string json;               ///< config.json verbatim, or gguf_config()
};

/// Parses the text of a config.json. Throws Error(input) naming the field at fault.
ModelConfig parse_model_config(const std::string& json, const std::string& path);
/// Of a folder: config.json, and the eos ids of generation_config.json if that file exists. Of a GGUF file:
/// what gguf_config() makes of it.
ModelConfig load_model_config(const std::string& model_path);

/// The supported model types, in alphabetical order.
const std::vector<std::string>& supported_model_types();

}  // namespace kvsim::model
