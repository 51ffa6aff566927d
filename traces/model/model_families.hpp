#pragma once
/// The model types whose configurations kvsim reads: what their configuration classes in transformers (5.23)
/// take for fields that a file leaves out, and what their layers are made of.
#include <cstdint>
#include <span>
#include <string_view>

#include "traces/model/model_parts.hpp"

namespace kvsim::model {

struct Family {
  std::string_view type{};
  bool sizes_only = false;  ///< kvsim knows what such models take, and does not run them
  /// Prefix of the classes of model code that files name, which changes nothing: transformers has these
  /// classes itself (Phi-3), or there are no others (Qwen 1). Empty: files name none.
  std::string_view code{};
  // What the class takes for absent fields.
  std::uint32_t query_heads = 0, vocab = 0;  ///< 0: the fields are required
  std::uint32_t kv_heads = 0;                ///< 0: as many as query heads
  std::uint32_t head_dim = 0;                ///< 0: hidden_size / num_attention_heads
  std::uint64_t max_positions = 0;           ///< 0: not known
  double norm_eps = 1e-6;
  bool tied = false;
  /// The layers that use sliding_window: none; all; those that use_sliding_window and layer_types or
  /// max_window_layers select; those that layer_types select, by default all but every `pattern`-th; those
  /// that layer_types or no_rope_layers select, whose windows are chunks.
  enum class Sliding { never, always, picked, patterned, chunks } sliding = Sliding::never;
  std::uint32_t window = 0, pattern = 0;  ///< of absent fields; window 0: none
  /// The projections that get biases by attention_bias: none, as the class does not know the field.
  enum class Biased { none, qkv, all } attention_bias = Biased::none;
  bool mlp_bias = false;  ///< whether the class knows the field
  // What the class computes with, of models that run.
  /// The layers that rotate queries and keys: none, as positions are learned (OPT); all by one rotation;
  /// those with a window by another one than full layers; those with a window alone, where there are windows
  /// (EXAONE 4) or anyway (Command-R7B); those that no_rope_layers or no_rope_layer_interval do not exempt.
  enum class Rotated { never, all, apart, windows, windows_only, listed } rotated = Rotated::all;
  double theta = 1e4, window_theta = 0;  ///< rope_theta; rope_local_base_freq, 0: there is no such field
  double partial_rotary = 0;             ///< partial_rotary_factor; 0: there is no such field
  std::string_view activation = "hidden_act";  ///< the field
  bool scaled_embedding = false;               ///< by the root of hidden_size
  bool multipliers = false;                    ///< whether the class knows the four of Granite
  double logit_scale = 0;                      ///< 0: there is no such field
  double query_scalar = 0;                     ///< query_pre_attn_scalar; 0: there is no such field
  /// attn_logit_softcapping and final_logit_softcapping; 0: none, -1: there are no such fields.
  double attention_cap = -1, logit_cap = -1;
  LayerParts parts{};  ///< where no field says otherwise
  Latent latent{};     ///< of absent fields; rank 0: keys and values are cached
  /// Of absent fields. count 0: there are none; used 0: that field is required; width 0: it is
  /// intermediate_size.
  Experts experts{};
  /// The layers that have experts: all; those behind first_k_dense_replace, of which `dense` is the default;
  /// by decoder_sparse_step and mlp_only_layers; by expert_layer_period and expert_layer_offset; by
  /// moe_layers or interleave_moe_layer_step.
  enum class Sparse { all, behind, stepped, periodic, listed } sparse = Sparse::all;
  std::uint32_t dense = 0;
  /// How wide what all tokens share is: n_shared_experts times an expert, where experts.shared_width is the
  /// default of that number; a field of its own; or as wide as an expert.
  enum class Shared { none, times, own, alike } shared = Shared::none;
  /// The layers that remember a state: none; by layer_types or full_attention_interval (gated delta rule);
  /// Mamba 2 by attn_layer_indices, in all layers beside attention, or by hybrid_override_pattern; Mamba 1 by
  /// attn_layer_period and attn_layer_offset; gated retention in the first half, whose other half shares one
  /// cache.
  enum class Memory { none, delta, bamba, falcon, nemotron, jamba, yoco } memory = Memory::none;
};

/// Returns all of them, in alphabetical order.
std::span<const Family> families();

}  // namespace kvsim::model
