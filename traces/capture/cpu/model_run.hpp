#pragma once
/// Runs a Llama-family model on the processor: pre-norm decoder layers of grouped-query attention with rotary
/// positions and SwiGLU, all arithmetic in float, a key-value cache that holds what a trace will hold.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/base/workers.hpp"
#include "traces/capture/cpu/weights.hpp"

namespace kvsim::capture::cpu {

/// Sees a pass while it runs. Calls come one at a time, in order, but not all from one thread: on_tensors of
/// a prompt goes on beside the model's next steps. What the model waits for is not counted as its time.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  /// q [n_heads, n, head_dim], k and v [n_kv_heads, n, head_dim] of the n tokens from position `first` on,
  /// exactly as attention uses them.
  virtual void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, std::span<const float> q,
                          std::span<const float> k, std::span<const float> v);
  /// First position whose attention rows are wanted, and all after it; default: none.
  virtual std::uint64_t first_attention_row() const;
  /// p [n_heads, n_keys] of the token at `position`, keys at first_key, first_key + 1, ...
  virtual void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                            std::uint64_t n_keys, std::span<const float> p);
  /// hidden [n, hidden_size] after the layer.
  virtual void on_layer_output(std::uint32_t layer, std::span<const float> hidden);
};

/// Wall clock of one pass, nanoseconds, without waiting for the observer.
struct PassTiming {
  std::int64_t total = 0;
  std::vector<float> layer, attention;  ///< [n_layers]; attention: scores, softmax and weighted sum
};

struct RunOptions {
  std::uint64_t capacity = 0;  ///< most tokens the cache will hold
  Elem elem = Elem::f32;       ///< q, k and v are rounded to it before attention uses them
  unsigned threads = 0;        ///< 0: as many as the machine has
};

class ModelRun {
 public:
  /// `config` and `weights` must outlive this. Throws Error(usage) when the cache exceeds the machine's
  /// memory.
  ModelRun(const ModelConfig& config, const Weights& weights, const RunOptions& options);
  ~ModelRun();

  /// Processes the next tokens (ids below vocab_size, at most capacity in all).
  PassTiming forward(std::span<const std::int32_t> tokens, RunObserver& observer);
  /// Tokens processed so far.
  std::uint64_t length() const;
  /// Logits [rows, vocab_size] of the last `rows` tokens of the latest pass.
  std::vector<float> logits(std::uint64_t rows = 1);
  unsigned threads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::capture::cpu
