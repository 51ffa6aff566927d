#pragma once
/// The arithmetic of a layer except its matrix products, on the device. nvcc compiles this header too: C++17.
/// T, the type of activations, is float or Bf16; every step computes in float and rounds its result once,
/// except where the comment names two roundings. Matrices are row-major without padding and lie on the
/// device; n is the number of tokens. Calls enqueue work on `stream` and return. The same input gives the
/// same bits: no result depends on the order of threads.
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kvsim::model::cuda {

/// Upper half of a float, as checkpoints store it.
struct Bf16 {
  std::uint16_t bits;
};
/// The type to which values are rounded (to nearest, ties to even).
enum class Stored : int { f32, f16, bf16 };

/// Copies rows `ids` of `table` to y [n, width].
template <class T>
void gather_rows(const T* table, const std::int32_t* ids, std::uint64_t n, std::uint64_t width, T* y,
                 cudaStream_t stream);

/// Fills each row of y [n, width] with `row`, for a product that adds to it.
template <class T>
void repeat_row(const float* row, std::uint64_t n, std::uint64_t width, T* y, cudaStream_t stream);

/// x += y.
template <class T>
void add_to(T* x, const T* y, std::uint64_t count, cudaStream_t stream);

/// y = weight * round(x / sqrt(mean(x^2) + eps)), row by row (Zhang and Sennrich 2019): rounded to T before
/// the weight and after it, as the reference implementations do. May work in place.
template <class T>
void rms_norm(const T* x, std::uint64_t n, std::uint64_t width, const float* weight, float eps, T* y,
              cudaStream_t stream);

/// gate [count] = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
template <class T>
void swiglu(T* gate, const T* up, std::uint64_t count, cudaStream_t stream);

/// The steps that turn a projection into the queries, keys or values of attention, in this order, and their
/// destination.
struct HeadScatter {
  std::uint32_t heads = 0, dim = 0;  ///< dim at most 1024
  std::uint64_t n = 0;
  const float* norm = nullptr;  ///< [dim]: rms_norm over each head; null: none
  float eps = 0;
  /// [n, rotary/2]: half-split rotation of the first `rotary` components (even, at most dim); null: none.
  const float *cosine = nullptr, *sine = nullptr;
  std::uint32_t rotary = 0;
  Stored round_to = Stored::f32;  ///< rounding to this type
  std::uint64_t capacity = 0;     ///< rows between two heads of the destination
  std::uint64_t first = 0;        ///< row of the first token in the destination
};
/// Transforms x [n, heads * dim] to rows [first, first + n) of y [heads, capacity, dim].
template <class T>
void split_heads(const HeadScatter& scatter, const T* x, T* y, cudaStream_t stream);

/// Copies x [heads, n, dim] to y [n, heads * dim].
template <class T>
void merge_heads(const T* x, std::uint32_t heads, std::uint64_t n, std::uint32_t dim, T* y,
                 cudaStream_t stream);

/// Scores of some queries in some heads: [heads, queries, pitch], column j for key first_key + j.
struct ScoreBlock {
  std::uint32_t heads = 0;
  std::uint64_t queries = 0, first_query = 0;  ///< positions first_query, first_query + 1, ...
  std::uint64_t keys = 0, first_key = 0;       ///< number of columns, and position of the first
  std::uint64_t pitch = 0;                     ///< at least `keys`
  std::int64_t window = -1;  ///< key j is seen by t iff t - window < j <= t; -1: every j <= t
};
/// Replaces `scores` by softmax(scale * scores) over the keys that each query sees, and by zero for the
/// others up to `pitch`. Also writes the result rounded to T to `rounded` (same shape; null when T is float).
template <class T>
void softmax(const ScoreBlock& block, float scale, float* scores, T* rounded, cudaStream_t stream);

/// Adds p and p^2 of the block's queries to sum and sum_squares [heads, capacity] at the key's position, in
/// the order of positions, so that the bits do not depend on the division of queries into blocks.
void add_columns(const ScoreBlock& block, const float* p, std::uint64_t capacity, double* sum,
                 double* sum_squares, cudaStream_t stream);

struct Greedy {
  std::int32_t id;    ///< of the largest logit, the lowest id among equals; -1 if every logit is NaN
  float logit;        ///< its value
  float log_sum_exp;  ///< of the row: log-probability = logit - log_sum_exp
};
/// Writes the greedy choice for each row of logits [rows, vocab] to chosen [rows].
void choose_greedily(const float* logits, std::uint64_t rows, std::uint64_t vocab, Greedy* chosen,
                     cudaStream_t stream);

}  // namespace kvsim::model::cuda
