#pragma once
/// Attention on the device. It multiplies blocks of queries by the keys they see, so that no T x T matrix
/// exists.
#include <cstdint>
#include <functional>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/device_kernels.hpp"
#include "traces/model/cuda/matrix_product.hpp"

namespace kvsim::model::cuda {

/// Causal attention of n new tokens over `past` earlier ones and themselves. q, k and v lie on the device.
template <class T>
struct DeviceAttentionInput {
  std::uint32_t heads = 0, kv_heads = 0, dim = 0;
  std::int64_t window = -1;  ///< key j is seen by t iff t - window < j <= t; -1: every j <= t
  std::uint64_t past = 0, n = 0;
  const T* q = nullptr;        ///< [heads, n, dim]
  const T* k = nullptr;        ///< [kv_heads, capacity, dim], past + n rows filled
  const T* v = nullptr;        ///< the same
  std::uint64_t capacity = 0;  ///< rows between two heads of k and v
};

/// Probabilities of consecutive queries, on the device: p [heads, rows, pitch] in float, column j for the key
/// at first_key + j; zero where the query does not see the key.
struct AttentionRows {
  std::uint64_t first_position = 0, rows = 0;
  std::uint64_t first_key = 0, keys = 0, pitch = 0;
  const float* p = nullptr;
};
/// Receives rows while work is being enqueued. Work that it enqueues on the stream of attention can read p;
/// later work on that stream overwrites p.
using RowsObserver = std::function<void(const AttentionRows& rows)>;

/// Sums, and sums of squares, of the attention each key received: [heads, capacity] on the device, or null.
struct ColumnSums {
  double *sum = nullptr, *sum_squares = nullptr;
  std::uint64_t capacity = 0;
};

/// Computes attention block by block of queries, every block in all heads at once: two batches of products
/// with one product per KV head, and one softmax. A workspace bounds the queries of a block.
template <class T>
class DeviceAttention {
 public:
  /// Most queries of a block. Scores times V has the fewest tiles of all products: a device computes some 128
  /// rows and 128 columns in one multiprocessor, so 32 heads with 512 queries each and up to 128 components
  /// make 128 tiles, about one for each of the 132 multiprocessors of an H100. More queries would take more
  /// memory and multiply more masked scores.
  static constexpr std::uint64_t kMostQueries = 512;

  /// Workspace in bytes for a block of `queries` which see no more than `longest` keys.
  static std::uint64_t bytes_of_block(std::uint32_t heads, std::uint32_t dim, std::uint64_t queries,
                                      std::uint64_t longest);

  /// `longest` is the largest number of keys that a query will see. Allocates `workspace` bytes, or those of
  /// a block of one query if that is more. Throws Error(usage) when the device has too little memory.
  DeviceAttention(std::uint32_t heads, std::uint32_t dim, std::uint64_t longest, std::uint64_t workspace);

  /// Computes attention into out [n, heads * dim]. Passes rows from `first_observed` on, counted from the
  /// first of the n, to `observe`, in order; adds all n rows to `columns`.
  void attend(MatrixProduct& product, const Stream& stream, const DeviceAttentionInput<T>& input, T* out,
              std::uint64_t first_observed, const RowsObserver& observe, const ColumnSums& columns = {});

 private:
  DeviceBytes workspace_;
};

}  // namespace kvsim::model::cuda
