#pragma once
/// The shape of a language model that determines its bytes and operations.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::cost {

struct Model {
  std::string name{};    ///< name in the catalogue, or the file it was read from
  std::string source{};  ///< where the numbers come from
  std::uint64_t layers = 0, hidden = 0, ffn = 0, vocab = 0;
  std::uint64_t query_heads = 0, kv_heads = 0;  ///< kv_heads divides query_heads
  std::uint64_t head_dim = 0, value_dim = 0;    ///< not hidden / query_heads in general (Qwen3, Gemma)
  std::uint64_t max_context = 0;                ///< positions the model was made for; 0: not known
  std::uint64_t window = 0;                     ///< sliding window of every layer; 0: full attention
  std::uint64_t learned_positions = 0;          ///< rows of a position embedding (OPT: 2050); 0: none
  bool gated_mlp = true;                        ///< three matrices (Llama) or two (OPT, GPT-J)
  bool tied_embeddings = false;
  bool layer_norm = false;            ///< weight and bias per norm (LayerNorm) or weight only (RMSNorm)
  std::uint64_t norms_per_block = 2;  ///< GPT-J: 1
  bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool qk_norm = false;  ///< a norm over head_dim of queries and keys (Qwen3)

  /// Returns how many of `tokens` tokens, the newest included, the newest attends to: the others may be
  /// freed.
  std::uint64_t within_window(std::uint64_t tokens) const {
    return window == 0 ? tokens : std::min(tokens, window);
  }
  /// Returns the parameters of one block's matrices: h*D*Hq + h*Hk*(D + Dv) + Hq*Dv*h + m*h*f, m = 3 (gated)
  /// or 2.
  std::uint64_t block_matrix_parameters() const;
  /// Counts the embedding, the head if it is not the embedding, and learned positions.
  std::uint64_t embedding_parameters() const;
  /// Counts norms and biases.
  std::uint64_t small_parameters() const;
  /// Counts all parameters: blocks, embeddings and head, norms and biases.
  std::uint64_t parameters() const;
  /// Counts the parameters of the matrices that a decode step reads: all but the input embedding, of which it
  /// reads single rows. The head counts, tied or not.
  std::uint64_t streamed_parameters() const;
};

/// Returns the share that one of `tensor_parallel` devices stores and computes: heads, MLP columns and
/// vocabulary rows are split, norms and the biases of row-parallel matrices are on every device, KV heads are
/// replicated beyond
/// their number. Throws Error(usage) for zero devices and when they do not divide the query heads.
Model device_share(const Model& model, std::uint64_t tensor_parallel);
/// Returns the KV heads that one device stores: ceil(stored / degree), at least one.
std::uint64_t local_kv_heads(std::uint64_t stored_kv_heads, std::uint64_t tensor_parallel);

/// Parses a config.json of Hugging Face transformers: llama, mistral, qwen2, qwen3, phi3, gemma, gemma2, opt,
/// gptj and other types with llama's keys and activation. Absent keys have the defaults of the model's class.
/// `name` and `source` of the file are used if it has them ("kvsim_name", "kvsim_source"), else `where`.
/// Throws Error(input) naming the key: missing, zero, negative, not whole, heads that do not divide, sizes
/// whose product does not fit 64 bits.
Model parse_model(std::string_view json, const std::string& where);
/// Finds a model by its name in the catalogue (ignoring case), or reads a config.json, the one in a
/// directory, or a GGUF file. Throws Error(usage) for unknown names with the nearest ones, Error(input) for
/// files.
Model find_model(const std::string& name_or_path);
/// Returns the models of the catalogue, sorted by name.
const std::vector<Model>& known_models();

}  // namespace kvsim::cost
