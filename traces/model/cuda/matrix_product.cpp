#include "traces/model/cuda/matrix_product.hpp"

#include <limits>
#include <type_traits>

#include "sim/base/error.hpp"
#include "traces/model/cuda/cublas_library.hpp"
#include "traces/model/cuda/cuda_error.hpp"

namespace kvsim::model::cuda {
namespace {

// NVIDIA recommends 32 MiB for Hopper and less for the others.
constexpr std::uint64_t kWorkspace = std::uint64_t{32} << 20;

const char* meaning(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "out of memory";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "not supported by the device";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    default:
      return "internal error";
  }
}

void check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string told = std::string("cuBLAS: ") + meaning(status) + " (status " +
                           std::to_string(static_cast<int>(status)) + "), while " + doing;
  if (status == CUBLAS_STATUS_ALLOC_FAILED) usage_error(told, "--device", kLessMemory);
  if (status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ARCH_MISMATCH)
    usage_error(told, "--device", "The device may be too old for this cuBLAS, or full. Use another, or cpu.");
  bug(told, "--device");
}

template <class T>
constexpr cudaDataType kType = std::is_same_v<T, Bf16> ? CUDA_R_16BF : CUDA_R_32F;

// The pedantic mode excludes TF32 and any other substitute for float arithmetic, regardless of environment
// variables.
template <class T>
constexpr cublasComputeType_t kCompute =
    std::is_same_v<T, Bf16> ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_PEDANTIC;

int checked_int(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
    usage_error("a matrix dimension of " + std::to_string(value) + " exceeds cuBLAS", "--device",
                "Prefill in smaller chunks.");
  return static_cast<int>(value);
}

}  // namespace

struct MatrixProduct::State {
  explicit State(const Stream& stream) : workspace(kWorkspace, "cuBLAS's workspace"), blas(cublas_library()) {
    check(blas.create(&handle), "opening it");
    version = [&] {
      int found = 0;
      check(blas.get_version(handle, &found), "asking for its version");
      return found;
    }();
    check(blas.set_stream(handle, stream.get()), "choosing the stream");
    check(blas.set_workspace(handle, workspace.data(), kWorkspace), "giving it a workspace");
    // Keeps partial sums of a bf16 product in float.
    check(blas.set_math_mode(handle,
                             static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                                       CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
          "choosing its arithmetic");
  }
  ~State() {
    if (handle != nullptr) static_cast<void>(blas.destroy(handle));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// cuBLAS stores matrices by columns: its matrices are the transposes of row-major ones, and out = x y
  /// becomes out^T = y^T x^T.
  template <class X, class Out>
  void multiply(const Batch<X, Out>& b, cublasOperation_t y_operation, float beta) {
    if (b.rows == 0 || b.columns == 0) return;
    const float alpha = 1.0F;
    const auto stride = [](std::uint64_t elements) { return static_cast<long long>(elements); };
    check(blas.gemm_strided_batched(handle, y_operation, CUBLAS_OP_N, checked_int(b.columns),
                                    checked_int(b.rows), checked_int(b.inner), &alpha, b.y, kType<X>,
                                    checked_int(b.y_pitch), stride(b.y_batch), b.x, kType<X>,
                                    checked_int(b.x_pitch), stride(b.x_batch), &beta, b.out, kType<Out>,
                                    checked_int(b.out_pitch), stride(b.out_batch), checked_int(b.batch),
                                    kCompute<X>, CUBLAS_GEMM_DEFAULT),
          "multiplying matrices");
  }

  DeviceBytes workspace;
  const CublasLibrary& blas;
  cublasHandle_t handle = nullptr;
  int version = 0;
};

MatrixProduct::MatrixProduct(const Stream& stream) : state_(std::make_unique<State>(stream)) {}
MatrixProduct::~MatrixProduct() = default;
MatrixProduct::MatrixProduct(MatrixProduct&&) noexcept = default;
MatrixProduct& MatrixProduct::operator=(MatrixProduct&&) noexcept = default;

template <class T, class Out>
void MatrixProduct::linear(const T* x, std::uint64_t n, std::uint64_t in, const T* w, std::uint64_t out,
                           Out* y, Result result) {
  Batch<T, Out> batch;
  batch.x = x;
  batch.y = w;
  batch.out = y;
  batch.rows = n;
  batch.inner = batch.x_pitch = batch.y_pitch = in;
  batch.columns = batch.out_pitch = out;
  state_->multiply(batch, CUBLAS_OP_T, result == Result::added_to ? 1.0F : 0.0F);
}

template <class T>
void MatrixProduct::times_transposed(const Batch<T, float>& batch) {
  state_->multiply(batch, CUBLAS_OP_T, 0.0F);
}

template <class T>
void MatrixProduct::times(const Batch<T, T>& batch) {
  state_->multiply(batch, CUBLAS_OP_N, 0.0F);
}

std::string MatrixProduct::describe() const {
  const int version = state_->version;
  return "cuBLAS " + std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100) + ", no TF32, bf16 accumulated in float32";
}

template void MatrixProduct::linear(const float*, std::uint64_t, std::uint64_t, const float*, std::uint64_t,
                                    float*, Result);
template void MatrixProduct::linear(const Bf16*, std::uint64_t, std::uint64_t, const Bf16*, std::uint64_t,
                                    Bf16*, Result);
template void MatrixProduct::linear(const Bf16*, std::uint64_t, std::uint64_t, const Bf16*, std::uint64_t,
                                    float*, Result);
template void MatrixProduct::times_transposed(const Batch<float, float>&);
template void MatrixProduct::times_transposed(const Batch<Bf16, float>&);
template void MatrixProduct::times(const Batch<float, float>&);
template void MatrixProduct::times(const Batch<Bf16, Bf16>&);

}  // namespace kvsim::model::cuda
