#pragma once
/// The shape of a language model that determines its bytes and operations.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "traces/model/model_config.hpp"

namespace kvsim::cost {

/// Neighbouring layers with one sliding window; 0: full attention.
struct WindowRun {
  std::uint64_t layers = 0, window = 0;
  bool operator==(const WindowRun&) const = default;
};

struct Model : model::LayerParts {
  std::string name{};    ///< name in the catalogue, or the file it was read from
  std::string source{};  ///< where the numbers come from
  std::uint64_t layers = 0, hidden = 0, ffn = 0, vocab = 0;
  std::uint64_t query_heads = 0, kv_heads = 0;  ///< kv_heads divides query_heads
  std::uint64_t head_dim = 0, value_dim = 0;    ///< not hidden / query_heads in general (Qwen3, Gemma)
  std::uint64_t max_context = 0;                ///< positions the model was made for; 0: not known
  std::uint64_t window = 0;                     ///< sliding window of the layers that have one; 0: none has
  std::vector<bool> full_layers{};              ///< [layers]: those without the window; empty: all have it
  std::uint64_t learned_positions = 0;          ///< rows of a position embedding (OPT: 2050); 0: none
  bool tied_embeddings = false;
  double weight_bits =
      16;  ///< of a parameter of the blocks' matrices, scales and zeros included, in the mean
  double embedding_bits = 16;  ///< of a parameter of the embedding and the head
  std::string remarks{};       ///< what the name does not say: how weights are stored, what is not counted

  /// Returns the layers from the first to the last, those with one window together.
  std::vector<WindowRun> window_runs() const;
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

/// Returns what a configuration, which is called `name`, says of sizes.
Model model_of(const model::ModelConfig& config, const std::string& name);
/// Parses a config.json of a type that model::families() has. `name` and `source` of the file are used if it
/// has them ("kvsim_name", "kvsim_source"), else `where`. Throws Error(input) naming the key.
Model parse_model(std::string_view json, const std::string& where);
/// Throws Error(usage) for a model only some of whose layers have a window: `what` counts one number of
/// tokens for all layers.
void require_equal_layers(const Model& model, const std::string& what);
/// Finds a model by its name in the catalogue (ignoring case), or reads a config.json, the one in a
/// directory, or a GGUF file. Throws Error(usage) for unknown names with the nearest ones, Error(input) for
/// files.
Model find_model(const std::string& name_or_path);
/// Returns the models of the catalogue, sorted by name.
const std::vector<Model>& known_models();

}  // namespace kvsim::cost
