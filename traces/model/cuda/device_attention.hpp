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

/// Computes attention in a workspace that bounds how many scores exist at a time.
class DeviceAttention {
 public:
  static constexpr std::uint64_t kDefaultWorkspace = std::uint64_t{256} << 20;

  /// Workspace in bytes for one query that sees `longest` keys, for any type T: 6 bytes per head and key.
  static std::uint64_t bytes_of_query(std::uint32_t heads, std::uint64_t longest);

  /// `longest` is the largest number of keys that a query will see. Allocates `workspace` bytes, or
  /// bytes_of_query() if that is more. Throws Error(usage) when the device has too little memory.
  DeviceAttention(std::uint32_t heads, std::uint64_t longest, std::uint64_t workspace = kDefaultWorkspace);

  /// Computes attention into out [n, heads * dim]. Passes rows from `first_observed` on, counted from the
  /// first of the n, to `observe`, in order; adds all n rows to `columns`.
  template <class T>
  void attend(MatrixProduct& product, const Stream& stream, const DeviceAttentionInput<T>& input, T* out,
              std::uint64_t first_observed, const RowsObserver& observe, const ColumnSums& columns = {});

 private:
  DeviceArray<std::byte> workspace_;
};

}  // namespace kvsim::model::cuda
