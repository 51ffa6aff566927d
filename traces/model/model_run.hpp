#pragma once
/// A run of a model of families(): decoder layers of grouped-query attention with rotary positions and a
/// gated feed-forward or experts, and a key-value cache that holds exactly the values that a trace stores.
/// The interface is the same on every device (device.hpp).
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/elements.hpp"
#include "traces/format/header.hpp"

namespace kvsim::model {

/// Receives the tensors of a pass while it runs. The calls of on_tensors, on_attention and on_layer_output
/// come one at a time, in order, but not all from one thread, and while the model computes further layers or
/// (forward_ahead) passes. Meanwhile the model asks what the observer wants, so the answers must not depend
/// on what it has received. Time during which the model waits for the observer is not counted as its time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// q [n_heads, n, head_dim], k and v [n_kv_heads, n, head_dim] of the n tokens from position `first` on,
  /// exactly as attention uses them: elements of RunOptions::elem, or floats that it represents without loss.
  virtual void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                          const Elements& k, const Elements& v);
  /// Whether to call on_tensors, which takes time on a device with memory of its own; default: yes.
  virtual bool wants_tensors() const;
  /// Whether the observer reads any query of the n tokens from position `first` on. If not, q may be empty,
  /// and a device need not copy it. Default: yes.
  virtual bool wants_queries(std::uint64_t first, std::uint64_t n) const;
  /// First position from which on the observer reads attention rows; default: none.
  virtual std::uint64_t first_attention_row() const;
  /// p [n_heads, n_keys] of the token at `position`, keys at first_key, first_key + 1, ...
  virtual void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                            std::uint64_t n_keys, std::span<const float> p);
  /// Whether the queries of the pass from position `first` on are counted in the column statistics. Called
  /// once per pass; default: no. Counted passes must come before all others.
  virtual bool counts_columns(std::uint64_t first) const;
  /// Whether to call on_layer_output, which takes time on a device with memory of its own; default: no.
  virtual bool wants_layer_output() const;
  /// hidden [n, hidden_size] after the layer.
  virtual void on_layer_output(std::uint32_t layer, std::span<const float> hidden);
};

/// Time of one pass in nanoseconds, by wall clock or by the device's own events, without waiting for the
/// observer.
struct PassTiming {
  std::int64_t total = 0;
  std::vector<float> layer, attention;  ///< [n_layers]; attention: scores, softmax and weighted sum
};

/// The attention that the keys of one layer received from the first `queries` tokens: for every key, the sum
/// over these queries of their softmax probabilities, and the sum of the squares. A run that counted no pass
/// has 0 queries and empty lists.
struct ColumnStatistics {
  std::uint64_t queries = 0;
  std::vector<float> sum, sum_squares;  ///< [n_heads, queries]
};

struct TokenChoice {
  std::int32_t id = -1;
  float logprob = 0;  ///< natural logarithm of its probability
};

struct RunOptions {
  std::uint64_t capacity = 0;  ///< largest number of tokens in the cache
  Elem elem = Elem::f32;       ///< q, k and v are rounded to it before attention uses them
  unsigned threads = 0;        ///< of the processor; 0: as many as the machine has
  Elem compute = Elem::f32;    ///< of weights and activations: f32, on a CUDA device also bf16; not f16
  /// Largest number of tokens in one pass, which determines the workspace; 0: capacity.
  std::uint64_t pass_tokens = 0;
  /// Whether passes will be counted in column statistics; their memory is then part of the run's need.
  bool counts_columns = false;
};

/// A model with its cache. Not copyable; not to be shared between threads.
class ModelRun {
 public:
  virtual ~ModelRun() = default;

  /// Processes the next tokens (ids below vocab_size, at most capacity in all). When it returns, the observer
  /// has received everything.
  virtual PassTiming forward(std::span<const std::int32_t> tokens, RunObserver& observer) = 0;
  /// The same, but a device may return before the observer has received everything, so that the next pass
  /// does not wait for it. The observer must live until settle() or abandon() has returned; an exception of
  /// it ends this pass, a later one or settle(). Default: forward().
  virtual PassTiming forward_ahead(std::span<const std::int32_t> tokens, RunObserver& observer);
  /// Waits until the observer has received everything. Default: nothing to wait for.
  virtual void settle();
  /// Waits for what the observer is receiving, and drops the rest of what it has not received. Call it when
  /// something else than the observer ends a run.
  virtual void abandon() noexcept;
  /// Tokens processed so far.
  virtual std::uint64_t length() const = 0;
  /// Logits [rows, vocab_size] of the last `rows` tokens of the latest pass.
  virtual std::vector<float> logits(std::uint64_t rows = 1) = 0;
  /// The most probable token after the latest pass, the lowest id among equals: the same as from logits(),
  /// but computed on the device. Its logprob is not finite when a logit is not.
  virtual TokenChoice most_probable();
  /// Column statistics over the passes that the observer counted. Sums are accumulated so that rounding to
  /// float is their largest error, in an order that depends only on the shape of the passes; no T x T matrix
  /// exists.
  virtual ColumnStatistics column_statistics(std::uint32_t layer) const = 0;
  /// Machine, arithmetic and software, for the trace; fields that state the request are left empty.
  virtual trace::Capture describe() const = 0;
};

}  // namespace kvsim::model
