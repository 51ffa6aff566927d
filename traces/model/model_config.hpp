#pragma once
/// What the configuration of a model says: one structure for those who run models and those who count what
/// models take. Files omit fields for which their model's class has a default, and every class has its own
/// defaults: those of transformers 5.23 apply (null differs from absence where the class distinguishes them).
/// A type is known or refused by name. So is a field whose name says that it may change attention, the cache
/// or sizes: none is ignored because nobody asked for it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/strict_json.hpp"
#include "traces/model/model_families.hpp"
#include "traces/model/rope.hpp"
#include "traces/model/stored_weights.hpp"

namespace kvsim::model {

/// Biases are those of the file and its class: llama and others have those of attention by attention_bias,
/// qwen2 always those of queries, keys and values.
struct ModelConfig : LayerParts {
  std::string model_type;    ///< of families()
  std::string architecture;  ///< architectures[0], or empty
  std::uint32_t n_layers = 0, hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint64_t max_positions = 0;
  double norm_eps = 1e-6;
  std::uint64_t learned_positions =
      0;  ///< rows of a position embedding (OPT), of which the first two are none
  std::optional<bool> tied_embeddings;  ///< if absent, tied exactly when the checkpoint has no lm_head
  bool tied_by_default = false;         ///< what the class takes then
  bool text_only = false;               ///< the file describes towers of other senses, too
  Latent latent;    ///< of latent attention n_kv_heads is 1, head_dim the numbers that are cached
  Experts experts;  ///< of the layers that have them
  Recurrence recurrence;
  std::vector<LayerKind> kinds;   ///< from the first layer to the last
  bool predicts_further = false;  ///< the file has layers that predict further tokens, which are not read
  StoredWeights stored_weights;
  RopeConfig rope;                                ///< of models that kvsim runs, as what follows
  std::optional<RopeConfig> other_rope;           ///< of some layers, where these rotate otherwise or not
  std::vector<bool> apart;                        ///< [n_layers] where there is other_rope: which ones
  float embedding_scale = 1, residual_scale = 1;  ///< factors on what is looked up, on what a half adds
  float logit_divisor = 1;
  /// Scaled products x of queries and keys, and logits, become cap * tanh(x / cap); 0: they stay.
  double attention_cap = 0, logit_cap = 0;
  double attention_scale = 0;  ///< factor on q.k; 0: 1/sqrt(head_dim)
  std::vector<std::int32_t>
      layer_window;  ///< [n_layers]; -1: full attention, else key j is seen by t iff t-W < j <= t
  /// Windows are chunks of the text: key j is seen by t iff j <= t and j / W = t / W (Llama 4).
  bool chunked = false;
  /// Queries of layers that do not rotate are multiplied by 1 + scale * ln(1 + floor((position + 1) /
  /// floor)); 0: they stay.
  double temperature_floor = 0, temperature_scale = 0;
  std::vector<std::int32_t> eos;  ///< ids that end generation; may be empty
  std::string json;               ///< config.json verbatim, or gguf_config()

  /// Components of a cached value: of latent attention the latent, which is the beginning of the key.
  std::uint32_t value_dim() const { return latent.rank != 0 ? latent.rank : head_dim; }
  /// Whether a layer rotates by other_rope.
  bool rotates_apart(std::uint32_t layer) const { return other_rope && apart[layer]; }
  const RopeConfig& rope_of(std::uint32_t layer) const { return rotates_apart(layer) ? *other_rope : rope; }
  bool rotates(std::uint32_t layer) const { return rope_of(layer).type != "none"; }
  /// Whether the model has parts that only the processor computes so far.
  bool needs_processor() const {
    return experts.count > 0 || latent.rank > 0 || sinks || norms != kNormsBefore || other_rope ||
           wide_qk_norm || centred_norms || activation != Activation::silu || interleaved ||
           fused_gate_up != fused_qkv || embedding_scale != 1 || residual_scale != 1 || logit_divisor != 1 ||
           attention_scale != 0 || attention_cap != 0 || logit_cap != 0 || bare_qk_norm || chunked;
  }
};

/// Parses the text of a config.json of any of families(); of one with a text_config that one. Throws
/// Error(input) naming the field at fault.
ModelConfig read_model_config(const std::string& json, const std::string& path);
/// The same for a model that is to run: throws Error(input) for what kvsim does not compute, too.
ModelConfig parse_model_config(const std::string& json, const std::string& path);
/// Of a folder: config.json, and the eos ids of generation_config.json if that file exists. Of a GGUF file:
/// what gguf_config() makes of it.
ModelConfig load_model_config(const std::string& model_path);

// The JSON of a model's folder as Python writes it.

/// parse_strict_json(), but the words Infinity and -Infinity, which Python writes and JSON does not have
/// (time_step_limit of Nemotron-H), are numbers of +-1e308. Throws Error(input).
inline boost::json::value parse_config_text(std::string_view text, const std::string& where) {
  constexpr std::size_t kMostValues = 100'000;
  constexpr std::string_view kInfinity = "Infinity", kLargest = "1e308   ";  // as long: positions agree
  static_assert(kInfinity.size() == kLargest.size());
  std::string plain(text);
  bool quoted = false;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (plain[i] == '"') quoted = !quoted;
    if (quoted && plain[i] == '\\') ++i;
    if (!quoted && text.substr(i).starts_with(kInfinity)) plain.replace(i, kInfinity.size(), kLargest);
  }
  return parse_strict_json(plain, where, kMostValues);
}

}  // namespace kvsim::model
