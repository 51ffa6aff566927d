#pragma once
/// What a model's layers are made of, in numbers: read from config.json once (model_config.hpp), for those
/// who run models and for those who count what models take.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace kvsim::model {

/// What a checkpoint calls the norms of a layer, by place: before attention, behind it, before the
/// feed-forward, behind it; null: there is none. Of families that kvsim does not run, only their number
/// counts.
using NormNames = std::array<const char*, 4>;
constexpr NormNames kNormsBefore{"input_layernorm", nullptr, "post_attention_layernorm", nullptr};
constexpr NormNames kNormsBehind{nullptr, "post_attention_layernorm", nullptr, "post_feedforward_layernorm"};
constexpr NormNames kNormsAround{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                                 "post_feedforward_layernorm"};
constexpr NormNames kOneNorm{"input_layernorm", nullptr, nullptr, nullptr};

/// What a gate passes, or what is between the two matrices of a feed-forward without one. gelu_tanh is GELU's
/// approximation.
enum class Activation { silu, gelu_tanh, gelu, relu };

/// The parts of a layer beside its matrices, which change what a model takes.
struct LayerParts {
  bool gated_mlp = true;       ///< three matrices (Llama) or two (OPT, GPT-J)
  bool layer_norm = false;     ///< weight and bias per norm, or the weight only
  bool norms_of_sums = false;  ///< norms behind a half are of the residual stream; the model has no other
  NormNames norms = kNormsBefore;
  bool qkv_bias = false, output_bias = false, mlp_bias = false, head_bias = false;
  bool qk_norm = false;          ///< a norm over each head of queries and of keys
  bool wide_qk_norm = false;     ///< that norm is over all heads at once (OLMo 2 and 3), with weights of each
  bool bare_qk_norm = false;     ///< that norm has no weights, and only layers that rotate have it (Llama 4)
  bool gated_attention = false;  ///< beside each number of a query stands one that scales the output's
  bool norms_from_one = false;   ///< norms are stored as what is added to one (Gemma)
  bool centred_norms = false;    ///< norms subtract the mean; wide_qk_norm is of each head alone (Command-R)
  bool parallel = false;         ///< attention and feed-forward read the same stream, each behind its norm
                                 ///< or both behind the layer's one
  Activation activation = Activation::silu;
  bool interleaved = false;  ///< components 2i and 2i + 1 rotate together, else i and i + half
  bool fused_qkv = false, fused_gate_up = false;  ///< their matrices are rows of one tensor
  bool sinks = false;  ///< a logit of each query head in every row of attention (gpt-oss)

  std::uint32_t norms_per_block() const {
    return static_cast<std::uint32_t>(norms.size() - std::count(norms.begin(), norms.end(), nullptr));
  }
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
  /// Scores are sigmoids, and a number of each expert is added when experts are chosen; else a softmax.
  bool corrected = false;
  /// Experts are in so many groups, of which only the best few are chosen from: by the best score of a group,
  /// or the best two of corrected ones. 0: there are no groups.
  std::uint32_t groups = 0, used_groups = 0;
  bool scaled_inputs = false;  ///< scores are sigmoids that scale what an expert reads (Llama 4)
  float scale = 1;             ///< factor on shares
  bool biased = false;         ///< router and experts have biases
  /// Experts compute (up + 1) gate sigmoid(gain gate), gate at most `limit`, up within it (gpt-oss); limit 0:
  /// as other feed-forwards.
  float gain = 0, limit = 0;
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
  /// It attends to keys and values that all such layers share, which are made of what enters the first of
  /// them: of a prompt only rows with logits pass through them (YOCO).
  bool crosses = false;

  bool alike(const LayerKind& other) const {
    return attends == other.attends && remembers == other.remembers && mlp == other.mlp &&
           crosses == other.crosses;
  }
};

}  // namespace kvsim::model
