#pragma once
/// A Llama-family model at work: pre-norm decoder layers of grouped-query attention with rotary positions and
/// SwiGLU, and a key-value cache that holds what a trace will hold. The same on every device (device.hpp).
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/elements.hpp"
#include "traces/format/header.hpp"

namespace kvsim::model {

/// Sees a pass while it runs. Calls come one at a time, in order, but not all from one thread: on_tensors of
/// a prompt goes on beside the model's next steps. What the model waits for is not counted as its time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// q [n_heads, n, head_dim], k and v [n_kv_heads, n, head_dim] of the n tokens from position `first` on,
  /// exactly as attention uses them: floats that RunOptions::elem holds without loss, or its elements.
  virtual void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                          const Elements& k, const Elements& v);
  /// Whether any query of the n tokens from position `first` on is wanted; where none is, q may be empty, and
  /// a device need not copy it. Default: yes.
  virtual bool wants_queries(std::uint64_t first, std::uint64_t n) const;
  /// First position whose attention rows are wanted, and all after it; default: none.
  virtual std::uint64_t first_attention_row() const;
  /// p [n_heads, n_keys] of the token at `position`, keys at first_key, first_key + 1, ...
  virtual void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                            std::uint64_t n_keys, std::span<const float> p);
  /// Whether the queries of this pass count in the column statistics; asked once per pass, default: no.
  /// Passes that count come before those that do not.
  virtual bool counts_columns() const;
  /// Whether on_layer_output is called at all, which takes time on a device with memory of its own; default:
  /// no.
  virtual bool wants_layer_output() const;
  /// hidden [n, hidden_size] after the layer.
  virtual void on_layer_output(std::uint32_t layer, std::span<const float> hidden);
};

/// Time of one pass, nanoseconds, without waiting for the observer: wall clock, or the device's own events.
struct PassTiming {
  std::int64_t total = 0;
  std::vector<float> layer, attention;  ///< [n_layers]; attention: scores, softmax and weighted sum
};

/// How much attention the keys of one layer received from the `queries` tokens counted, which are the first:
/// each query's softmax probabilities, summed over the queries for every key, and so their squares. Who
/// counted nothing has 0 queries and empty lists.
struct ColumnStatistics {
  std::uint64_t queries = 0;
  std::vector<float> sum, sum_squares;  ///< [n_heads, queries]
};

struct TokenChoice {
  std::int32_t id = -1;
  float logprob = 0;  ///< natural logarithm of its probability
};

struct RunOptions {
  std::uint64_t capacity = 0;  ///< most tokens the cache will hold
  Elem elem = Elem::f32;       ///< q, k and v are rounded to it before attention uses them
  unsigned threads = 0;        ///< of the processor; 0: as many as the machine has
  Elem compute = Elem::f32;    ///< of weights and activations: f32, on a CUDA device also bf16; not f16
  /// Most tokens of one pass, for which workspace is set aside; 0: capacity.
  std::uint64_t pass_tokens = 0;
  /// Passes will be counted in column statistics, whose memory is part of what the run needs.
  bool counts_columns = false;
};

/// Not copied, not shared between threads.
class ModelRun {
 public:
  virtual ~ModelRun() = default;

  /// Processes the next tokens (ids below vocab_size, at most capacity in all).
  virtual PassTiming forward(std::span<const std::int32_t> tokens, RunObserver& observer) = 0;
  /// Tokens processed so far.
  virtual std::uint64_t length() const = 0;
  /// Logits [rows, vocab_size] of the last `rows` tokens of the latest pass.
  virtual std::vector<float> logits(std::uint64_t rows = 1) = 0;
  /// The most probable token after the latest pass, the lowest id among equals: what logits() would say,
  /// found where they are. Its logprob is not finite when a logit is not.
  virtual TokenChoice most_probable();
  /// Of the passes whose observer counted them. Sums are accumulated so that rounding to float is their
  /// largest error, in an order that only the passes' shape decides; no T x T matrix exists.
  virtual ColumnStatistics column_statistics(std::uint32_t layer) const = 0;
  /// Machine, arithmetic and software, for the trace; what was asked for is left empty.
  virtual trace::Capture describe() const = 0;
};

}  // namespace kvsim::model
