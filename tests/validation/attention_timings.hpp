#pragma once
/// Measured times of the attention of one layer.
#include <cstdint>
#include <span>

namespace kvsim::cost {

struct AttentionTiming {
  std::uint16_t count;   ///< sequences that each decode a token, or tokens of one sequence's chunk
  std::uint16_t tokens;  ///< tokens that each sequence then holds, or tokens before the chunk
  float microseconds;
};

// LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT licence), profiler/perf, Llama-3.1-8B on an RTX
// 4090, bf16, in that project's order.

/// Decoding, wherever keys and values are at least 80 MB: more than the last cache level.
std::span<const AttentionTiming> rtx_4090_decode_attention();
/// Chunks of 512 tokens and more, and all that follow 1024 tokens and more.
std::span<const AttentionTiming> rtx_4090_prefill_attention();

}  // namespace kvsim::cost
