#pragma once
/// The arithmetic of a layer except its matrix products (linear_layer.hpp), all in float. Matrices are
/// row-major without padding; n is the number of tokens.
#include <cstdint>
#include <functional>
#include <span>

#include "sim/base/half.hpp"
#include "sim/base/workers.hpp"
#include "traces/model/model_parts.hpp"
#include "traces/model/rope.hpp"

namespace kvsim::model::cpu {

/// y [n, width] = weight * x / sqrt(mean(x^2) + eps), row by row (Zhang and Sennrich 2019). May work in
/// place.
void rms_norm(Workers& workers, const float* x, std::uint64_t n, std::span<const float> weight, float eps,
              float* y);

/// The same of x less its mean, plus the bias if there is one: layer norm (Ba et al. 2016).
void layer_norm(Workers& workers, const float* x, std::uint64_t n, std::span<const float> weight,
                std::span<const float> bias, float eps, float* y);

/// gate [n] = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
void swiglu(Workers& workers, float* gate, const float* up, std::uint64_t n);

/// gate [n] = f(gate) * up, or f(gate) if `up` is null. f is silu; relu; GELU, x / 2 * (1 + erf(x /
/// sqrt(2))); or its approximation x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
void activate(Workers& workers, Activation f, float* gate, const float* up, std::uint64_t n);

/// x += y.
void add_to(Workers& workers, float* x, const float* y, std::uint64_t n);

/// The steps that turn a projection into the queries, keys or values of attention, in this order.
struct HeadTransform {
  std::uint32_t heads = 0, dim = 0;
  std::span<const float> norm;  ///< RMSNorm over each head, or with heads * dim weights over all; empty: none
  float eps = 0;
  const RopeTable* rope = nullptr;   ///< null: none
  Elem elem = Elem::f32;             ///< rounding to this type
  bool interleaved = false;          ///< components 2i and 2i + 1 rotate together, else i and i + pairs
  bool centred = false;              ///< layer norm over each head, whichever weights there are
  std::uint32_t first_rotated = 0;   ///< the first component that rotates
  std::span<const float> factors{};  ///< [n]: on what a row has become; empty: none
};
/// Rounds to what a cache of these elements holds.
void round_to(Elem elem, std::span<float> numbers);

/// Transforms x [n, heads * dim] to y [heads, n, dim].
void split_heads(Workers& workers, const HeadTransform& transform, const float* x, std::uint64_t n, float* y);

/// Causal attention of n new tokens over `past` earlier ones and themselves.
struct AttentionInput {
  std::uint32_t heads = 0, kv_heads = 0, dim = 0;
  std::int32_t window = -1;  ///< key j is seen by t iff t - window < j <= t; -1: every j <= t
  std::uint64_t past = 0, n = 0;
  const float* q = nullptr;    ///< [heads, n, dim]
  const void* k = nullptr;     ///< [kv_heads, capacity, dim] of `elem`, past + n rows filled
  const void* v = nullptr;     ///< the same
  std::uint64_t capacity = 0;  ///< rows between two heads of k and v
  Elem elem = Elem::f32;       ///< of k and v; it changes what is read of memory, and no result
  float cap = 0;               ///< scores x become cap * tanh(x / cap) before the softmax; 0: they stay
  /// [heads]: a score that takes part in the softmax of each of a head's rows and gives nothing; null: none.
  const float* sinks = nullptr;
  bool chunked = false;  ///< key j is seen by t iff j <= t and j / window = t / window
};
/// Receives row `row` of the n: probabilities p [heads, n_keys] over keys first_key, first_key + 1, ...
using RowObserver = std::function<void(std::uint64_t row, std::uint64_t first_key, std::uint64_t n_keys,
                                       std::span<const float> p)>;
/// Arrays [heads, stride] to which attend() adds each query's probabilities and their squares, entry j for
/// key j. They are double, so that rounding the result to float is the largest error of the sum.
struct ColumnSums {
  double* sum = nullptr;  ///< null: attend() sums nothing
  double* sum_squares = nullptr;
  std::uint64_t stride = 0;  ///< at least past + n
};
/// Computes attention into out [n, heads * dim]. Passes rows from `first_observed` on to `observe`, in order.
/// Works on blocks of at most 64 queries, the queries of all heads that share a key head together, so that at
/// most 64 x (past + n) scores exist at a time per thread (per key head, while rows are observed). A token
/// alone is shared among threads by stretches of keys. A head's columns are summed in the order of its
/// queries for any number of threads.
void attend(Workers& workers, const AttentionInput& input, float* out, std::uint64_t first_observed,
            const RowObserver& observe, const ColumnSums& columns = {});

}  // namespace kvsim::model::cpu
