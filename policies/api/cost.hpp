#pragma once
/// Counts what a policy costs beside exact attention over the tokens it keeps; the cost models price these
/// counts for a machine. A policy counts what its rule needs when it is written as its paper or code
/// describes it, not what replay spends on it.
#include <cstddef>
#include <cstdint>

#include "policies/api/eviction.hpp"

namespace kvsim::policy {

/// The shape that the counts are for: one layer of one sequence.
struct CostShape {
  std::size_t n_layers = 0;
  std::size_t query_heads = 0, kv_heads = 0;
  std::size_t head_dim = 0, value_dim = 0;
  std::size_t hidden = 0;
  std::size_t prompt = 0;         ///< P tokens
  std::size_t budget = 0;         ///< B, mean tokens per lane of the layer, at most P + generated
  std::size_t element_bytes = 2;  ///< bytes of an attention score or a key component
};

/// Work beside exact attention.
struct Work {
  double flops = 0;  ///< operations of matrix units; a multiply-add counts two
  double ops = 0;    ///< everything else: adds, compares, exponentials, popcounts of 64-bit words, one each
  double bytes = 0;  ///< read and written in device memory
  double launches = 0;  ///< kernels beside those of exact attention
};
Work operator+(const Work& a, const Work& b);
Work operator*(double times, const Work& work);

/// Bytes kept beside the cache for as long as it lives. They include a position table (int32 per slot) where
/// the rule needs one: keys are stored after RoPE, so attention itself needs none.
struct Metadata {
  std::uint64_t lane_slot = 0;   ///< per slot of every lane
  std::uint64_t layer_slot = 0;  ///< per slot of a layer whose lanes share it
  std::uint64_t lane = 0;        ///< per lane, whatever its budget
  std::uint64_t layer = 0;       ///< per layer
};
Metadata operator+(const Metadata& a, const Metadata& b);

/// All costs of one layer of one sequence; Metadata says itself what each of its counts is per.
struct Cost {
  Metadata metadata{};
  /// Bytes held only while a layer's prompt is scored and compressed: vote buffers, bit matrices.
  std::uint64_t scratch_bytes = 0;
  /// Attention rows of the prompt, of every query head, that the rule reads and a fused kernel does not
  /// return: 0, the last W, or kAllRows. Pricing adds their recomputation (for a window) or the traffic of
  /// the whole score matrix.
  std::size_t prompt_rows = 0;
  /// Whether the rule also reads the row of every generated token.
  bool decode_rows = false;
  Work prompt{};        ///< once, beside those rows: pooling, hashing, selection, compaction
  Work step{};          ///< per generated token, whatever is resident
  Work step_slot{};     ///< per generated token and token resident per lane (mean over the layer's lanes)
  Work leaving{};       ///< per generated token that makes another one leave: merging
  Work leaving_slot{};  ///< the same per token resident per lane
  /// Within attention, for each number read that is not stored as it comes: unpacking a code and making a
  /// number of it. The bytes read are the ledger's.
  Work read_number{};
  /// Generated tokens are only appended: only the prompt is compressed.
  bool appends = false;
  /// The prompt passes through the cache token by token, so the cache never holds more than the budget.
  bool streams = false;
  /// The lanes of a layer hold the same tokens. The caller that combines parts into a policy sets this; the
  /// parts do not.
  bool lanes_alike = false;
  /// Share of a prefill that runs once more before the real one, without its last layer's MLP, when each
  /// request makes its own measurement (XKV's mini-prefill).
  double extra_prefills = 0;
  /// Tokens that the model reads at once where it repeats the whole prompt behind itself, and every layer
  /// waits for that with all its keys and values (KVzip's second pass); 0: it is not asked to.
  std::size_t repeated_at_once = 0;
};
/// What a selection reads of one layer of one sequence at a step, while every lane holds so many tokens.
struct ReadCount {
  double head_tokens = 0;  ///< tokens that one query head reads
  /// Tokens that the query heads of a KV head read together, at most: where they agree it is less.
  double lane_tokens = 0;
  double index_bytes_read = 0;  ///< of the index
  double index_bytes = 0;       ///< that the index takes
  /// Tokens that stand beside each other in what a lane reads, at least and in the mean: pages and chunks are
  /// read as a whole.
  double run_tokens = 1;
};

/// Cost of an eviction together with its allocation or representation. `appends` and `streams` come from the
/// eviction alone.
Cost combined(const Cost& eviction, const Cost& other);

}  // namespace kvsim::policy
