#pragma once
/// Generates seeded synthetic traces with the structure of real attention: sinks, locality, heavy hitters,
/// drift, facts that late queries ask for.
#include <cstdint>

#include "traces/format/memory_trace.hpp"

namespace kvsim::trace {

struct SyntheticOptions {
  std::uint32_t layers = 4, kv_heads = 2, group = 2, head_dim = 64;
  std::uint64_t prompt = 512, decode = 64;
  std::uint64_t seed = 1;
  double sink = 4.0;          ///< extra logit of the first token(s)
  std::uint32_t sinks = 4;    ///< number of sink tokens
  double locality = 3.0;      ///< logit gained by the nearest keys, decaying with distance
  double local_span = 16;     ///< tokens after which that gain has fallen to 1/e
  double heavy = 3.0;         ///< extra logit of heavy hitters
  double heavy_share = 0.03;  ///< share of tokens that are heavy hitters
  double drift = 0.5;         ///< rotation of the topic direction over the trace, radians per 1000 tokens
  double noise = 1.0;         ///< standard deviation of the unstructured logits
  /// In half of the components of noise keys are as many times longer and queries shorter, in the other half
  /// the other way round: logits stay, but keys near each other are not those that a query looks for.
  double stretch = 1.0;
  /// Facts hidden in the prompt, one in each of as many equal stretches of it. As many last tokens of the
  /// prompt ask for one each, in order, and generated tokens for one after the other. Facts are marked as
  /// evidence, the tokens that ask as the question, the rest of the prompt as context.
  std::uint32_t needles = 0;
  std::uint32_t needle_tokens = 4;  ///< successive tokens of a fact
  double needle = 12.0;             ///< logit that they gain from a query that asks for it
  Elem elem = Elem::f32;
};

/// The same options give the same bytes on any machine with IEEE arithmetic and at any thread count.
MemoryTrace synthetic_trace(const SyntheticOptions& options);

}  // namespace kvsim::trace
