#pragma once
/// The shape of a language model that determines its bytes and operations.
#include <cstdint>
#include <optional>
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

/// Matrices that tokens are multiplied by one after the other.
using Products = std::vector<model::Matrix>;

struct Model : model::LayerParts {
  std::string name{};    ///< name in the catalogue, or the file it was read from
  std::string source{};  ///< where the numbers come from
  std::uint64_t layers = 0, hidden = 0, ffn = 0, vocab = 0;
  std::uint64_t query_heads = 0, kv_heads = 0;  ///< kv_heads divides query_heads
  /// Not hidden / query_heads in general (Qwen3, Gemma). With a latent they are those that attention over the
  /// cache computes with: one key of latent.rank + latent.rotated, whose first latent.rank are the value.
  std::uint64_t head_dim = 0, value_dim = 0;
  model::Latent latent{};
  model::Experts experts{};
  model::Recurrence recurrence{};
  /// From the first layer to the last; empty: all attend and have a dense MLP.
  std::vector<model::LayerKind> kinds{};
  std::uint64_t max_context = 0;  ///< positions the model was made for; 0: not known
  std::uint64_t window = 0;       ///< sliding window of the layers that have one; 0: none has
  /// Windows are chunks of the text (Llama 4): what a prompt's rows see counts so, and what is held and read
  /// of a cache as the most, a whole chunk.
  bool chunked = false;
  std::vector<bool> full_layers{};      ///< [cached_layers()]: those without the window; empty: all have it
  std::uint64_t learned_positions = 0;  ///< rows of a position embedding (OPT: 2050); 0: none
  bool tied_embeddings = false;
  double weight_bits =
      16;  ///< of a parameter of the blocks' matrices, scales and zeros included, in the mean
  std::optional<double> expert_bits{};  ///< of a parameter of an expert, where that differs
  unsigned product_bits =
      16;  ///< of both factors of the blocks' products: 8 and 4 where inputs are quantised
  double embedding_bits = 16;  ///< of a parameter of the embedding and the head
  std::string remarks{};       ///< what the name does not say: how weights are stored, what is not counted

  /// Returns the cached layers from the first to the last, those with one window together.
  std::vector<WindowRun> window_runs() const;
  /// Returns the same with all that have a window together, behind those without.
  std::vector<WindowRun> window_sums() const;
  /// Returns the kinds of layers with their numbers, in order of their first layer.
  std::vector<model::LayerKind> layer_kinds() const;
  std::uint64_t cached_layers() const;       ///< that attend, those that share a cache as one
  std::uint64_t crossing_layers() const;     ///< that share one
  std::uint64_t remembering_layers() const;  ///< that hold a state
  /// Returns the numbers of a value that are stored beside its key: none with a latent.
  std::uint64_t stored_value_dim() const { return latent.rank == 0 ? value_dim : 0; }
  /// Returns the components of a key and a value that attention over a prompt computes with: a latent is
  /// expanded for that.
  std::uint64_t prompt_key_dim() const { return latent.rank == 0 ? head_dim : latent.plain + latent.rotated; }
  std::uint64_t prompt_value_dim() const { return latent.rank == 0 ? value_dim : latent.value; }
  /// Returns the bytes of the states of a sequence, in one layer that remembers.
  std::uint64_t state_bytes() const;

  /// Returns the products of attention: [h, Hq*D + Hk*(D + Dv)], [Hq*Dv, h]. With a latent: [h, compressed
  /// query + latent + rotated key], the expansions of queries and of the latent, [Hq*Dv, h]; a decode step
  /// multiplies queries and outputs by the latter (absorbed), which takes the same operations.
  Products attention_products() const;
  /// Returns the products of a layer that shares a cache: [h, Hq*D], [Hq*Dv, h]; and those of what is shared:
  /// [h, Hk*(D + Dv)].
  Products crossing_products() const;
  Products shared_products() const;
  /// Returns the products of an MLP of this width: [h, m*f], [f, h], m = 2 (gated) or 1.
  Products mlp_products(std::uint64_t width) const;
  /// Returns the parameters of the blocks' matrices without those of experts that a router picks.
  std::uint64_t shared_matrix_parameters() const;
  /// Returns the parameters of all experts that a router picks.
  std::uint64_t expert_parameters() const;
  /// Returns those of one block, in the mean: h*D*Hq + h*Hk*(D + Dv) + Hq*Dv*h + m*h*f, m = 3 (gated) or 2,
  /// where all are alike.
  std::uint64_t block_matrix_parameters() const;
  /// Counts the embedding, the head if it is not the embedding, and learned positions.
  std::uint64_t embedding_parameters() const;
  /// Counts norms, biases, routers and what else is stored in 16 bits whatever the matrices are.
  std::uint64_t small_parameters() const;
  /// Counts all parameters: blocks, embeddings and head, norms and biases.
  std::uint64_t parameters() const;
  /// Counts the parameters of the matrices that a decode step reads: all but the input embedding, of which it
  /// reads single rows. The head counts, tied or not; of experts, those that one token is routed to.
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
/// Throws Error(usage) for a model with layers that hold a state: `what` counts tokens.
void require_caches(const Model& model, const std::string& what);
/// Throws Error(usage) for a model whose layers do not all hold the same: `what` counts one number of tokens
/// for all of them.
void require_equal_layers(const Model& model, const std::string& what);
/// Throws Error(usage) for a model with experts, a latent or a state: `what` takes its layers to be of one
/// attention and one MLP.
void require_plain_layers(const Model& model, const std::string& what);
/// Finds a model by its name in the catalogue (ignoring case), or reads a config.json, the one in a
/// directory, or a GGUF file. Throws Error(usage) for unknown names with the nearest ones, Error(input) for
/// files.
Model find_model(const std::string& name_or_path);
/// Returns the models of the catalogue, sorted by name.
const std::vector<Model>& known_models();

}  // namespace kvsim::cost
