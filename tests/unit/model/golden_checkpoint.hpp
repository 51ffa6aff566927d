#pragma once
/// Loads the golden checkpoints of tests/golden/capture.
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/source_folder.hpp"
#include "traces/model/cpu/cpu_run.hpp"
#include "traces/model/input_file.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/safetensors.hpp"

namespace kvsim::model {

struct GoldenCheckpoint {
  explicit GoldenCheckpoint(const std::string& variant)
      : directory(test::source_folder() + "/tests/golden/capture/" + variant),
        config(load_model_config(directory)),
        checkpoint(directory),
        weights(load_weights(checkpoint, config)),
        golden_file(directory, "golden.safetensors", 1 << 20),
        golden(parse_safetensors(golden_file.bytes(), golden_file.path())) {}

  std::vector<std::int32_t> tokens() const {
    const StoredTensor& stored = golden.at("tokens");
    std::vector<std::int32_t> ids(stored.elements());
    std::memcpy(ids.data(), stored.data.data(), stored.data.size());
    return ids;
  }
  std::vector<float> expected(const std::string& name) const {
    const StoredTensor& stored = golden.at(name);
    std::vector<float> values(stored.elements());
    std::memcpy(values.data(), stored.data.data(), stored.data.size());
    return values;
  }

  /// Relative error of transformers' own bf16 run against expected(stage), in the Frobenius norm.
  double bf16_error(const std::string& stage) const {
    return static_cast<double>(expected("bf16." + stage).at(0));
  }

  std::string directory;
  ModelConfig config;
  Checkpoint checkpoint;
  Weights weights;
  MappedFile golden_file;
  TensorMap golden;
};

/// Those that every device runs, and GGUF files describe.
inline const std::vector<std::string>& device_variants() {
  static const std::vector<std::string> kVariants{
      "llama_untied_f32",  "llama_tied",          "llama_attention_bias", "llama_rope_llama3",
      "llama_rope_linear", "llama_rope_yarn",     "llama_sharded_f32",    "mistral_window",
      "phi3_window",       "phi3_partial_rotary", "phi3_longrope_short",  "phi3_longrope_long",
      "qwen2_late_window", "qwen2_mixed_windows", "qwen3_qk_norm",        "qwen3_untied_bias"};
  return kVariants;
}

/// Those, and what runs on the processor only.
inline const std::vector<std::string>& golden_variants() {
  static const std::vector<std::string> kVariants = [] {
    std::vector<std::string> variants = device_variants();
    for (const char* variant :
         {"cohere2_rotated_windows", "cohere_qk_norm",          "deepseek_v2_latent",
          "deepseek_v3_latent",      "exaone4_rotated_windows", "gemma2_capped",
          "gemma3_two_rotations",    "gemma_scaled_embedding",  "glm4_four_norms",
          "glm_interleaved",         "gpt_neox_parallel",       "gpt_neox_serial",
          "gpt_oss_sinks",           "granite_multipliers",     "llama4_chunks",
          "mixtral_experts",         "olmo2_norms_behind",      "olmo3_yarn_in_full_layers",
          "olmoe_experts",           "opt_learned_positions",   "opt_norms_of_sums",
          "qwen2_moe_shared",        "qwen3_moe_experts",       "smollm3_unrotated_layer"})
      variants.emplace_back(variant);
    return variants;
  }();
  return kVariants;
}

}  // namespace kvsim::model
