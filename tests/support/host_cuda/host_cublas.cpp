#include <array>
#include <stdexcept>
#include <vector>

#include "host_cuda.hpp"
#include "sim/base/half.hpp"
#include "traces/model/cuda/cublas_library.hpp"

struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace {

using Type = cudaDataType;

std::size_t bytes_of(Type type) {
  return type == CUDA_R_32F ? 4 : 2;
}

float read(Type type, const void* data, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == CUDA_R_16BF ? kvsim::widen_bf16(bits) : kvsim::widen_f16(bits);
}

void write(Type type, void* data, std::size_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<std::uint16_t*>(data)[i] =
        type == CUDA_R_16BF ? kvsim::narrow_bf16(value) : kvsim::narrow_f16(value);
  }
}

/// A column-major matrix of `columns` columns, `pitch` apart; one per product of the batch.
struct Operand {
  const void* data;
  Type type;
  std::size_t rows, columns, pitch, stride;

  void check(std::size_t batch, const char* what) const {
    if (pitch < rows) throw std::logic_error("cuBLAS on the host: columns overlap");
    const std::size_t last = (batch - 1) * stride + (columns - 1) * pitch + rows;
    host_cuda::check_on_device(data, last * bytes_of(type), what);
  }
  /// Product `index` of the batch, its vectors of length `inner` one after the other.
  std::vector<float> vectors(std::size_t index, bool by_column) const {
    std::vector<float> values(rows * columns);
    for (std::size_t column = 0; column < columns; ++column)
      for (std::size_t row = 0; row < rows; ++row)
        values[by_column ? column * rows + row : row * columns + column] =
            read(type, data, index * stride + column * pitch + row);
    return values;
  }
};

/// Keeps several partial sums, so that the compiler can vectorise.
float dot(const float* a, const float* b, std::size_t n) {
  std::array<float, 16> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size())
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[i + lane] * b[i + lane];
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const float part : sums) sum += part;
  return sum;
}

struct Product {
  Operand a, b, c;
  bool a_transposed;
  std::size_t inner, batch;
  float beta;

  void run() const {
    for (std::size_t index = 0; index < batch; ++index) {
      const std::vector<float> left = a.vectors(index, a_transposed), right = b.vectors(index, true);
      for (std::size_t column = 0; column < c.columns; ++column) {
        for (std::size_t row = 0; row < c.rows; ++row) {
          const std::size_t at = index * c.stride + column * c.pitch + row;
          float value = dot(left.data() + row * inner, right.data() + column * inner, inner);
          if (beta != 0) value += beta * read(c.type, c.data, at);
          write(c.type, const_cast<void*>(c.data), at, value);
        }
      }
    }
  }
};

cublasStatus_t create(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t get_version(cublasHandle_t, int* version) {
  *version = CUBLAS_VER_MAJOR * 10000;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_workspace(cublasHandle_t, void* data, std::size_t bytes) {
  host_cuda::check_on_device(data, bytes, "cuBLAS's workspace");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_math_mode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply(cublasHandle_t handle, cublasOperation_t a_operation, cublasOperation_t b_operation,
                        int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                        long long a_stride, const void* b, cudaDataType b_type, int ldb, long long b_stride,
                        const void* beta, void* c, cudaDataType c_type, int ldc, long long c_stride,
                        int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  if (b_operation != CUBLAS_OP_N || *static_cast<const float*>(alpha) != 1.0F || m < 1 || n < 1 || k < 1 ||
      batch < 1)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool transposed = a_operation == CUBLAS_OP_T;
  const auto size = [](auto value) { return static_cast<std::size_t>(value); };
  const Product product{
      {a, a_type, size(transposed ? k : m), size(transposed ? m : k), size(lda), size(a_stride)},
      {b, b_type, size(k), size(n), size(ldb), size(b_stride)},
      {c, c_type, size(m), size(n), size(ldc), size(c_stride)},
      transposed,
      size(k),
      size(batch),
      *static_cast<const float*>(beta)};
  product.a.check(product.batch, "first matrix of a product");
  product.b.check(product.batch, "second matrix of a product");
  product.c.check(product.batch, "result of a product");
  host_cuda::enqueue_product(handle->stream, [product] { product.run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const kvsim::model::cuda::CublasLibrary& kvsim::model::cuda::cublas_library() {
  static const CublasLibrary kLibrary{create,        destroy,       get_version, set_stream,
                                      set_workspace, set_math_mode, multiply};
  return kLibrary;
}
