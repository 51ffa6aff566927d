#pragma once
/// The tensors of a checkpoint, mapped from the file. Only norms and biases, a few vectors per
/// layer, are widened once, and quantised matrices packed.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/half.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/packed_weights.hpp"
#include "traces/model/safetensors.hpp"

namespace kvsim::model {

/// y = x W^T + b with W row-major [out, in].
struct Linear {
  const std::byte* data = nullptr;
  Elem elem = Elem::f32;
  std::uint64_t out = 0, in = 0;
  std::vector<float> bias;  ///< [out] or empty
  /// The matrix, if it is quantised; data is then null, and elem f32.
  std::shared_ptr<const PackedWeights> packed{};
  /// What `data` points to where the file has the matrix in another order or other numbers.
  std::shared_ptr<const void> reordered{};

  /// Rows [first, first + n) as floats: in place if the file stores them as aligned floats, else in
  /// `scratch`.
  const float* rows(std::uint64_t first, std::uint64_t n, std::vector<float>& scratch) const;
  /// W^T as floats, row-major [in, out].
  std::vector<float> transposed() const;
};

struct GatedMlp {
  Linear gate;  ///< empty: the feed-forward has two matrices
  Linear up, down;
};

struct ExpertWeights {
  Linear router;  ///< [experts, hidden]
  std::vector<GatedMlp> experts;
  std::vector<float> correction;   ///< [experts]: added to scores when experts are chosen, or empty
  std::optional<GatedMlp> shared;  ///< what all tokens go through
  Linear shared_gate;  ///< [1, hidden]: a sigmoid of it scales what that gives; empty: nothing does
};

/// Latent attention (DeepSeek V2) in its absorbed form: what all heads share is the key, whose first part is
/// the value, and each head's projections of it are on the side of queries and outputs.
struct LatentWeights {
  Linear down_q;               ///< [query_rank, hidden]; without it queries are of the hidden state
  std::vector<float> q_norm;   ///< [query_rank]
  Linear q;                    ///< [heads * (plain + rotated), query_rank or hidden]
  Linear down_kv;              ///< [rank + rotated, hidden]
  std::vector<float> kv_norm;  ///< [rank]
  std::vector<Linear> keys;    ///< of each head [rank, plain]: its query in terms of the latent
  std::vector<Linear> values;  ///< of each head [value, rank]: its output in terms of the latent
};

/// The MLP's matrices are empty where the layer has experts.
struct LayerWeights : GatedMlp {
  /// [hidden], with biases behind them [2 * hidden] where config.layer_norm; or empty: none before.
  std::vector<float> attention_norm, mlp_norm;
  std::vector<float> attention_out_norm, mlp_out_norm;  ///< the same behind
  std::vector<float> sinks;                             ///< [heads], or empty: there are none
  std::vector<float> q_norm, k_norm;  ///< [head_dim], of all heads [heads * head_dim], or empty
  Linear q, k, v, o;
  std::shared_ptr<const LatentWeights> latent{};  ///< then q, k and v are empty
  std::shared_ptr<const ExpertWeights> experts{};

  /// Row-major [heads * value_dim(), hidden]: the products of the heads' cached values that the layer adds.
  std::vector<float> output_projection() const;
};

struct Weights {
  Linear embedding;         ///< [vocab, hidden], read row by row
  Linear positions;         ///< [config.learned_positions, hidden], added to what is looked up; empty: none
  Linear head;              ///< [vocab, hidden]; the embedding itself when tied
  std::vector<float> norm;  ///< as those of layers
  std::vector<LayerWeights> layers;
  bool tied = false;
  Elem elem = Elem::f32;           ///< of the embedding, which counts as the element type of the checkpoint
  std::vector<std::string> notes;  ///< tensors that the model does not use, or that are absent but not
                                   ///< required
};

/// Loads every tensor that `config` requires and checks its shape. Throws Error(input) for a tensor inside a
/// layer that kvsim does not use, because such a model computes something else. `checkpoint` must outlive the
/// result.
Weights load_weights(const Checkpoint& checkpoint, const ModelConfig& config);

}  // namespace kvsim::model
