#pragma once
/// The model types whose configurations kvsim reads: what their configuration classes in transformers (5.23)
/// take for fields that a file leaves out, and what their layers are made of.
#include <cstdint>
#include <span>
#include <string_view>

namespace kvsim::model {

/// The parts of a layer beside its matrices, which change what a model takes.
struct LayerParts {
  bool gated_mlp = true;    ///< three matrices (Llama) or two (OPT, GPT-J)
  bool layer_norm = false;  ///< weight and bias per norm, or the weight only
  std::uint32_t norms_per_block = 2;
  bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool qk_norm = false;       ///< a norm over each head of queries and of keys
  bool wide_qk_norm = false;  ///< that norm is over all heads at once (OLMo 2 and 3)
};

struct Family {
  std::string_view type{};
  bool runs = false;  ///< whether kvsim runs such models; of the others it knows what they take
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
  /// max_window_layers select; those that layer_types select, by default all but every `pattern`-th.
  enum class Sliding { never, always, picked, patterned } sliding = Sliding::never;
  std::uint32_t window = 0, pattern = 0;  ///< of absent fields; window 0: none
  /// The projections that get biases by attention_bias: none, as the class does not know the field.
  enum class Biased { none, qkv, all } attention_bias = Biased::none;
  bool mlp_bias = false;  ///< whether the class knows the field
  LayerParts parts{};     ///< where no field says otherwise
};

/// Returns all of them, in alphabetical order.
std::span<const Family> families();

}  // namespace kvsim::model
