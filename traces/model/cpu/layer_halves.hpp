#pragma once
/// The halves of a layer, attention and feed-forward, as families have them: where their norms stand, what is
/// added to the residual stream, experts.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/workers.hpp"
#include "traces/model/cpu/kernels.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

/// to [hidden] = what a token enters the first layer with. Throws Error(usage) for a position beyond those
/// that the model has learned.
void embed_token(const ModelConfig& config, const Weights& weights, std::int32_t token,
                 std::uint64_t position, float* to);

/// y [n, hidden] = the norm that the family has, of x; `weight` as in LayerWeights, empty: x. May work in
/// place.
void apply_norm(Workers& workers, const ModelConfig& config, const float* x, std::uint64_t n,
                std::span<const float> weight, float* y);

/// x [n, hidden] = the residual stream, with a norm before the half if there is one.
void enter_half(Workers& workers, const ModelConfig& config, std::span<const float> norm,
                const std::vector<float>& hidden, std::uint64_t n, std::vector<float>& x);
/// The same for both halves of a layer that computes them side by side: `entered` is what the feed-forward
/// reads, of other layers left alone. One norm of both is computed once.
void enter_halves(Workers& workers, const ModelConfig& config, const LayerWeights& layer,
                  const std::vector<float>& hidden, std::uint64_t n, std::vector<float>& x,
                  std::vector<float>& entered);
/// Adds x [n, hidden] to the residual stream: with a norm behind the half if there is one, which may be of
/// the sum (config.norms_of_sums), times config.residual_scale. Overwrites x.
void leave_half(Workers& workers, const ModelConfig& config, std::span<const float> norm,
                std::vector<float>& x, std::uint64_t n, std::vector<float>& hidden);

/// What a query at `position` is multiplied by in layers that do not rotate (config.temperature_floor).
float query_temperature(const ModelConfig& config, std::uint64_t position);

/// How heads of a layer become queries and keys. `temperatures`: of each row's queries; empty: none.
struct LayerHeads {
  LayerHeads(const ModelConfig& config, const LayerWeights& layer, const RopeTable& rope, Elem elem,
             std::span<const float> temperatures);
  HeadTransform queries, keys;
};
/// The queries q [heads, n, head_dim], keys k [n, head_dim] and values v [n, value_dim] of latent attention,
/// of x [n, hidden]: values are the first components of keys. `scratch` keeps its memory between calls.
void latent_heads(Workers& workers, const ModelConfig& config, const LatentWeights& weights, bool alike,
                  const LayerHeads& heads, const float* x, std::uint64_t n, std::vector<float>& scratch,
                  std::vector<float>& q, std::vector<float>& k, std::vector<float>& v);
/// out [n, heads * latent.value] = the values of what each head has attended: [n, heads, stride], of which
/// the first latent.rank count.
void latent_outputs(Workers& workers, const ModelConfig& config, const LatentWeights& weights, bool alike,
                    const std::vector<float>& attended, std::uint64_t stride, std::uint64_t n,
                    std::vector<float>& out);

/// What the family does to logits: divides them, caps them.
void finish_logits(const ModelConfig& config, std::span<float> logits);

/// Arrays of a feed-forward, which keep their memory between calls.
struct FeedForwardSpace {
  std::vector<float> gate, up, rows, out, scores;
};
/// x [n, hidden] = the layer's feed-forward of x. An expert computes the tokens that are routed to it and no
/// others; a token's sum is in the order of the experts' numbers. `alike`: products are apply_linear_alike's.
void feed_forward(Workers& workers, const ModelConfig& config, const LayerWeights& layer, bool alike,
                  std::uint64_t n, std::vector<float>& x, FeedForwardSpace& space);

}  // namespace kvsim::model::cpu
