#pragma once
/// What a model's layers are made of, in numbers: read from config.json once (model_config.hpp), for those
/// who run models and for those who count what models take.
#include <cstdint>
#include <vector>

namespace kvsim::model {

/// The parts of a layer beside its matrices, which change what a model takes.
struct LayerParts {
  bool gated_mlp = true;    ///< three matrices (Llama) or two (OPT, GPT-J)
  bool layer_norm = false;  ///< weight and bias per norm, or the weight only
  std::uint32_t norms_per_block = 2;
  bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool qk_norm = false;          ///< a norm over each head of queries and of keys
  bool wide_qk_norm = false;     ///< that norm is over all heads at once (OLMo 2 and 3)
  bool gated_attention = false;  ///< beside each number of a query stands one that scales the output's
  bool norms_behind = false;     ///< with two norms, they stand behind the halves (OLMo 2), else before them
  bool norms_from_one = false;   ///< norms are stored as what is added to one (Gemma)
  bool gelu = false;             ///< the gate passes GELU (tanh), else SiLU
  bool sinks = false;            ///< a logit of each query head in every row of attention (gpt-oss)
};

/// Attention that caches one vector of each token for all heads (DeepSeek V2, section 2.1): a latent, from
/// which every head's key and value are expanded, and a rotated key.
struct Latent {
  std::uint32_t rank = 0;        ///< of the latent; 0: the model has keys and values
  std::uint32_t query_rank = 0;  ///< of the vector that queries are expanded from; 0: there is none
  std::uint32_t plain = 0, rotated = 0, value = 0;  ///< components of a head: of its key, of its value
};

/// A feed-forward of many parts, of which a router picks some for each token.
struct Experts {
  std::uint32_t count = 0, used = 0, width = 0;
  std::uint64_t shared_width = 0;  ///< of what every token goes through beside them
  bool normalised = false;         ///< the shares of those that are used add up to one
  bool shared_gate = false;        ///< a vector that scales what that gives
  bool corrected = false;          ///< a number of each expert is added to its score
  bool biased = false;             ///< router and experts have biases
};

struct Matrix {
  std::uint64_t inputs = 0, outputs = 0;
};

/// A layer that remembers a state of fixed size (Mamba, gated delta rule).
struct Recurrence {
  std::vector<Matrix> matrices{};
  std::uint64_t small = 0;                   ///< parameters beside them
  std::uint64_t state = 0, convolution = 0;  ///< numbers of one sequence
  std::uint32_t state_bytes = 4;             ///< of a number of the state
};

/// Neighbouring layers of one kind. A layer may attend and remember at once (Falcon-H1), or only have a
/// feed-forward (Nemotron-H).
struct LayerKind {
  enum class Mlp { none, dense, experts };

  std::uint64_t layers = 0;
  bool attends = true, remembers = false;
  Mlp mlp = Mlp::dense;

  bool alike(const LayerKind& other) const {
    return attends == other.attends && remembers == other.remembers && mlp == other.mlp;
  }
};

}  // namespace kvsim::model
