#include <cmath>
#include <type_traits>

#include "traces/model/cuda/cuda_error.hpp"
#include "traces/model/cuda/device_kernels.hpp"

namespace kvsim::model::cuda {
namespace {

constexpr unsigned kLanes = 32;  // lanes of a warp
constexpr unsigned kAllLanes = 0xffffffffU;
constexpr unsigned kThreads = 256;
constexpr unsigned kMostThreads = 1024;  // of a block, on every device
constexpr unsigned kWarps = 4;  // warps of a block whose warps work independently

// Elements ----------------------------------------------------------------------------------------------

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(Bf16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}

// Gives the same bits as sim/base/half.hpp, which does not compile as C++17.
__device__ inline Bf16 to_bf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}
__device__ inline float f16_value(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t rest = bits & 0x7fffU;
  if (rest >= 0x7c00U) return __uint_as_float(sign | 0x7f800000U | ((rest & 0x3ffU) << 13));
  const float scaled = __uint_as_float(rest << 13) * 0x1p112F;
  return __uint_as_float(sign | __float_as_uint(scaled));
}
__device__ inline std::uint16_t f16_bits(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, rest = bits & 0x7fffffffU;
  if (rest > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (rest >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (rest < 0x38800000U) {
    const float shifted = __uint_as_float(rest) + 0.5F;
    return static_cast<std::uint16_t>(sign | (__float_as_uint(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = rest + 0xfffU + ((rest >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

template <class T>
__device__ inline T narrow(float value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return to_bf16(value);
  } else {
    return value;
  }
}

__device__ inline float rounded_to(Stored stored, float value) {
  if (stored == Stored::bf16) return widen(to_bf16(value));
  if (stored == Stored::f16) return f16_value(f16_bits(value));
  return value;
}

// Reductions: trees of a fixed shape ----------------------------------------------------------------------

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Smaller {
  __device__ int operator()(int a, int b) const { return a < b ? a : b; }
};

/// Every lane gets the same bits, because a + b and b + a are equal.
template <class Value, class Op>
__device__ Value reduce_warp(Value value, Op op) {
  for (unsigned distance = kLanes / 2; distance > 0; distance /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, static_cast<int>(distance)));
  return value;
}

/// Every thread of the block must call it and gets the result; blocks consist of whole warps.
template <class Value, class Op>
__device__ Value reduce_block(Value value, Value neutral, Op op) {
  __shared__ Value partial[kLanes];
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  value = reduce_warp(value, op);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = reduce_warp(lane < blockDim.x / kLanes ? partial[lane] : neutral, op);
  __syncthreads();  // the next reduction writes to the same memory
  return value;
}

__device__ inline std::uint64_t global_thread() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

// Kernels -------------------------------------------------------------------------------------------------

template <class T>
__global__ void gather_rows_kernel(const T* table, const std::int32_t* ids, std::uint64_t width, T* y) {
  const T* from = table + static_cast<std::uint64_t>(ids[blockIdx.x]) * width;
  T* to = y + std::uint64_t{blockIdx.x} * width;
  for (std::uint64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

template <class T>
__global__ void repeat_row_kernel(const float* row, std::uint64_t width, T* y) {
  T* to = y + std::uint64_t{blockIdx.x} * width;
  for (std::uint64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = narrow<T>(row[i]);
}

__device__ inline float inverse_root_mean_square(float sum_of_squares, std::uint64_t width, float eps) {
  return 1.0F / sqrtf(sum_of_squares / static_cast<float>(width) + eps);
}
template <class T>
__device__ inline float normalised(T x, float inverse, float weight) {
  return widen(narrow<T>(widen(x) * inverse)) * weight;
}

template <class T>
__global__ void rms_norm_kernel(const T* x, std::uint64_t width, const float* weight, float eps, T* y) {
  const T* from = x + std::uint64_t{blockIdx.x} * width;
  T* to = y + std::uint64_t{blockIdx.x} * width;
  float squares = 0;
  for (std::uint64_t i = threadIdx.x; i < width; i += blockDim.x) squares += widen(from[i]) * widen(from[i]);
  const float inverse = inverse_root_mean_square(reduce_block(squares, 0.0F, Sum{}), width, eps);
  for (std::uint64_t i = threadIdx.x; i < width; i += blockDim.x)
    to[i] = narrow<T>(normalised(from[i], inverse, weight[i]));
}

template <class T>
__global__ void swiglu_kernel(T* gate, const T* up, std::uint64_t count) {
  const std::uint64_t i = global_thread();
  if (i >= count) return;
  const float x = widen(gate[i]);
  gate[i] = narrow<T>(x / (1.0F + expf(-x)) * widen(up[i]));
}

template <class T>
__global__ void add_to_kernel(T* x, const T* y, std::uint64_t count) {
  const std::uint64_t i = global_thread();
  if (i < count) x[i] = narrow<T>(widen(x[i]) + widen(y[i]));
}

/// One warp per head of a token.
template <class T>
__global__ void split_heads_kernel(HeadScatter s, const T* x, T* y) {
  const std::uint64_t item = std::uint64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (item >= s.n * s.heads) return;
  const unsigned lane = threadIdx.x % kLanes;
  const std::uint64_t row = item / s.heads, head = item % s.heads;
  const T* from = x + item * s.dim;
  T* to = y + (head * s.capacity + s.first + row) * s.dim;

  float inverse = 0;
  if (s.norm != nullptr) {
    float squares = 0;
    for (unsigned i = lane; i < s.dim; i += kLanes) squares += widen(from[i]) * widen(from[i]);
    inverse = inverse_root_mean_square(reduce_warp(squares, Sum{}), s.dim, s.eps);
  }
  const auto component = [&](unsigned i) {
    return s.norm == nullptr ? widen(from[i]) : widen(narrow<T>(normalised(from[i], inverse, s.norm[i])));
  };
  const auto store = [&](unsigned i, float value) { to[i] = narrow<T>(rounded_to(s.round_to, value)); };
  const unsigned half = s.rotary / 2;
  for (unsigned i = lane; i < half; i += kLanes) {
    const float cosine = s.cosine[row * half + i], sine = s.sine[row * half + i];
    const float low = component(i), high = component(i + half);
    store(i, low * cosine - high * sine);
    store(i + half, high * cosine + low * sine);
  }
  for (unsigned i = s.rotary + lane; i < s.dim; i += kLanes) store(i, component(i));
}

/// One warp per head of a token.
template <class T>
__global__ void merge_heads_kernel(const T* x, std::uint32_t heads, std::uint64_t n, std::uint32_t dim,
                                   T* y) {
  const std::uint64_t item = std::uint64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (item >= n * heads) return;
  const std::uint64_t row = item / heads, head = item % heads;
  const T* from = x + (head * n + row) * dim;
  T* to = y + item * dim;
  for (unsigned i = threadIdx.x % kLanes; i < dim; i += kLanes) to[i] = from[i];
}

/// The columns [from, to) of a block that a query sees.
struct Visible {
  std::uint64_t from, to;
};
__device__ inline Visible visible(const ScoreBlock& block, std::uint64_t query) {
  const std::uint64_t position = block.first_query + query;
  std::uint64_t first = 0;
  if (block.window >= 0 && position + 1 > static_cast<std::uint64_t>(block.window))
    first = position + 1 - static_cast<std::uint64_t>(block.window);
  return {first > block.first_key ? first - block.first_key : 0, position + 1 - block.first_key};
}

/// One block of threads per query and head.
template <class T>
__global__ void softmax_kernel(ScoreBlock block, float scale, float* scores, T* rounded) {
  const std::uint64_t row = std::uint64_t{blockIdx.y} * block.queries + blockIdx.x;
  float* p = scores + row * block.pitch;
  const Visible seen = visible(block, blockIdx.x);

  float largest = -INFINITY;
  for (std::uint64_t j = seen.from + threadIdx.x; j < seen.to; j += blockDim.x)
    largest = fmaxf(largest, p[j]);
  largest = reduce_block(largest, -INFINITY, Larger{});

  float sum = 0;
  for (std::uint64_t j = seen.from + threadIdx.x; j < seen.to; j += blockDim.x) {
    p[j] = expf((p[j] - largest) * scale);
    sum += p[j];
  }
  const float inverse = 1.0F / reduce_block(sum, 0.0F, Sum{});

  // The reduction is a barrier, so values written by other threads can be read now.
  for (std::uint64_t j = threadIdx.x; j < block.pitch; j += blockDim.x) {
    const float value = j < seen.from || j >= seen.to ? 0.0F : p[j] * inverse;
    p[j] = value;
    if constexpr (!std::is_same_v<T, float>) rounded[row * block.pitch + j] = narrow<T>(value);
  }
}

/// One thread per key and head.
__global__ void add_columns_kernel(ScoreBlock block, const float* p, std::uint64_t capacity, double* sum,
                                   double* sum_squares) {
  const std::uint64_t column = global_thread();
  if (column >= block.keys) return;
  const float* from = p + std::uint64_t{blockIdx.y} * block.queries * block.pitch + column;
  const std::uint64_t to = blockIdx.y * capacity + block.first_key + column;
  double total = sum[to], squares = sum_squares[to];
  for (std::uint64_t query = 0; query < block.queries; ++query) {
    const double value = from[query * block.pitch];
    total += value;
    squares += value * value;
  }
  sum[to] = total;
  sum_squares[to] = squares;
}

__global__ void choose_greedily_kernel(const float* logits, std::uint64_t vocab, Greedy* chosen) {
  const float* row = logits + std::uint64_t{blockIdx.x} * vocab;
  float largest = -INFINITY;
  for (std::uint64_t i = threadIdx.x; i < vocab; i += blockDim.x) largest = fmaxf(largest, row[i]);
  largest = reduce_block(largest, -INFINITY, Larger{});

  const int none = static_cast<int>(vocab);
  int first = none;
  float sum = 0;
  for (std::uint64_t i = threadIdx.x; i < vocab; i += blockDim.x) {
    if (row[i] == largest && first == none) first = static_cast<int>(i);
    sum += expf(row[i] - largest);
  }
  first = reduce_block(first, none, Smaller{});
  sum = reduce_block(sum, 0.0F, Sum{});
  if (threadIdx.x == 0) chosen[blockIdx.x] = {first == none ? -1 : first, largest, largest + logf(sum)};
}

// Launches ------------------------------------------------------------------------------------------------

unsigned blocks_for(std::uint64_t items, unsigned per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}
/// Number of threads of a block: whole warps, no more than the items need.
unsigned threads_for(std::uint64_t items, unsigned most = kThreads) {
  return items >= most ? most : blocks_for(items, kLanes) * kLanes;
}

template <class Parameter>
struct AsIs {
  using type = Parameter;
};

template <class... Parameters>
void launch(void (*kernel)(Parameters...), dim3 blocks, unsigned threads, cudaStream_t stream,
            typename AsIs<Parameters>::type... arguments) {
  if (blocks.x == 0 || blocks.y == 0) return;
  void* pointers[] = {&arguments...};
  check(cudaLaunchKernel(kernel, blocks, dim3(threads), pointers, 0, stream), "starting a kernel");
}

}  // namespace

template <class T>
void gather_rows(const T* table, const std::int32_t* ids, std::uint64_t n, std::uint64_t width, T* y,
                 cudaStream_t stream) {
  launch(gather_rows_kernel<T>, blocks_for(n, 1), threads_for(width), stream, table, ids, width, y);
}

template <class T>
void repeat_row(const float* row, std::uint64_t n, std::uint64_t width, T* y, cudaStream_t stream) {
  launch(repeat_row_kernel<T>, blocks_for(n, 1), threads_for(width), stream, row, width, y);
}

template <class T>
void rms_norm(const T* x, std::uint64_t n, std::uint64_t width, const float* weight, float eps, T* y,
              cudaStream_t stream) {
  launch(rms_norm_kernel<T>, blocks_for(n, 1), threads_for(width), stream, x, width, weight, eps, y);
}

template <class T>
void swiglu(T* gate, const T* up, std::uint64_t count, cudaStream_t stream) {
  launch(swiglu_kernel<T>, blocks_for(count, kThreads), kThreads, stream, gate, up, count);
}

template <class T>
void add_to(T* x, const T* y, std::uint64_t count, cudaStream_t stream) {
  launch(add_to_kernel<T>, blocks_for(count, kThreads), kThreads, stream, x, y, count);
}

template <class T>
void split_heads(const HeadScatter& scatter, const T* x, T* y, cudaStream_t stream) {
  launch(split_heads_kernel<T>, blocks_for(scatter.n * scatter.heads, kWarps), kWarps * kLanes, stream,
         scatter, x, y);
}

template <class T>
void merge_heads(const T* x, std::uint32_t heads, std::uint64_t n, std::uint32_t dim, T* y,
                 cudaStream_t stream) {
  launch(merge_heads_kernel<T>, blocks_for(n * heads, kWarps), kWarps * kLanes, stream, x, heads, n, dim, y);
}

template <class T>
void softmax(const ScoreBlock& block, float scale, float* scores, T* rounded, cudaStream_t stream) {
  launch(softmax_kernel<T>, dim3(blocks_for(block.queries, 1), block.heads), threads_for(block.keys), stream,
         block, scale, scores, rounded);
}

void add_columns(const ScoreBlock& block, const float* p, std::uint64_t capacity, double* sum,
                 double* sum_squares, cudaStream_t stream) {
  launch(add_columns_kernel, dim3(blocks_for(block.keys, kThreads), block.heads), kThreads, stream, block, p,
         capacity, sum, sum_squares);
}

void choose_greedily(const float* logits, std::uint64_t rows, std::uint64_t vocab, Greedy* chosen,
                     cudaStream_t stream) {
  // There are few rows, so one block has to be quick.
  launch(choose_greedily_kernel, blocks_for(rows, 1), threads_for(vocab, kMostThreads), stream, logits, vocab,
         chosen);
}

#define KVSIM_INSTANTIATE(T)                                                                                \
  template void gather_rows(const T*, const std::int32_t*, std::uint64_t, std::uint64_t, T*, cudaStream_t); \
  template void repeat_row(const float*, std::uint64_t, std::uint64_t, T*, cudaStream_t);                   \
  template void rms_norm(const T*, std::uint64_t, std::uint64_t, const float*, float, T*, cudaStream_t);    \
  template void swiglu(T*, const T*, std::uint64_t, cudaStream_t);                                          \
  template void add_to(T*, const T*, std::uint64_t, cudaStream_t);                                          \
  template void split_heads(const HeadScatter&, const T*, T*, cudaStream_t);                                \
  template void merge_heads(const T*, std::uint32_t, std::uint64_t, std::uint32_t, T*, cudaStream_t);       \
  template void softmax(const ScoreBlock&, float, float*, T*, cudaStream_t);
KVSIM_INSTANTIATE(float)
KVSIM_INSTANTIATE(Bf16)
#undef KVSIM_INSTANTIATE

}  // namespace kvsim::model::cuda
