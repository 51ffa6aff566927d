#pragma once
/// Small traces of noise, for tests that need a shape but no structure.
#include <cmath>

#include "sim/base/rng.hpp"
#include "traces/format/memory_trace.hpp"

namespace kvsim::test {

struct TraceShape {
  std::uint32_t layers = 2, kv_heads = 2, group = 2, head_dim = 8;
  std::uint64_t prompt = 24, decode = 9;
  double softcap = 0;      ///< of logits
  bool sinks = false;      ///< a logit of every query head
  bool latent = false;     ///< values are all but two components of keys, and those two rotate
  double sharpness = 1.5;  ///< standard deviation of q and k components
  std::uint64_t seed = 1;
  std::vector<std::int32_t> layer_window = {};  ///< empty: full attention
  bool chunked = false;
  bool output_weights = false;
  /// Tokens 1 .. `context` of the prompt are context, those behind are the question; 0: no parts are known.
  std::uint64_t context = 0;
  std::vector<std::uint64_t> evidence = {};  ///< tokens that are evidence, with `context`
};

inline trace::MemoryTrace random_trace(const TraceShape& shape) {
  trace::Model model;
  model.name = "noise";
  model.n_layers = shape.layers;
  model.n_kv_heads = shape.kv_heads;
  model.n_q_heads = shape.kv_heads * shape.group;
  model.head_dim = model.v_head_dim = model.rotary_dim = shape.head_dim;
  if (shape.latent) {
    model.values_in_keys = true;
    model.rotary_dim = 2;
    model.v_head_dim = model.first_rotated = shape.head_dim - 2;
  }
  model.hidden_size = model.n_q_heads * shape.head_dim;
  model.vocab_size = 100;
  model.attn_scale = 1.0 / std::sqrt(shape.head_dim);
  model.logit_softcap = shape.softcap;
  model.layer_window = shape.layer_window;
  model.chunked = shape.chunked;
  for (std::uint32_t i = 0; shape.sinks && i < shape.layers * model.n_q_heads; ++i)
    model.sinks.push_back(static_cast<float>(2 + 2 * normal(combine({shape.seed, 4, i}))));
  trace::Header header = trace::plain_header(model, shape.prompt, shape.decode);
  for (std::size_t i = 0; i < header.model.inv_freq.size(); ++i)
    header.model.inv_freq[i] = static_cast<float>(std::pow(10.0, -static_cast<double>(i)));
  for (std::uint64_t t = 0; t < header.n_tokens(); ++t)
    header.token_logprob.push_back(-static_cast<float>(6 * uniform01(combine({shape.seed, 5, t}))));
  if (shape.output_weights) header.output_elem = Elem::f32;
  if (shape.context > 0) {
    header.flags_known |= trace::kFlagQuestion | trace::kFlagContext | trace::kFlagEvidence;
    header.token_flags[0] |= trace::kFlagSpecial;
    for (std::uint64_t t = 1; t < shape.prompt; ++t)
      header.token_flags[t] |= t <= shape.context ? trace::kFlagContext : trace::kFlagQuestion;
    for (const std::uint64_t t : shape.evidence) header.token_flags[t] |= trace::kFlagEvidence;
  }
  trace::MemoryTrace trace(std::move(header));
  for (std::uint32_t layer = 0; shape.output_weights && layer < shape.layers; ++layer)
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
      std::uint64_t i = 0;
      for (float& x : trace.output_weights(layer, head))
        x = static_cast<float>(normal(combine({shape.seed, 3, layer, head, i++})));
    }
  const trace::Tensor tensors[] = {trace::Tensor::query, trace::Tensor::key, trace::Tensor::value};
  for (std::uint64_t t = 0; t < (shape.latent ? 2 : 3); ++t) {
    const std::uint32_t heads = t == 0 ? model.n_q_heads : model.n_kv_heads;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer)
      for (std::uint32_t head = 0; head < heads; ++head) {
        std::uint64_t i = 0;
        for (float& x : trace.rows(tensors[t], layer, head))
          x = static_cast<float>((t < 2 ? shape.sharpness : 1.0) *
                                 normal(combine({shape.seed, t, layer, head, i++})));
      }
  }
  return trace;
}

}  // namespace kvsim::test
