#pragma once
/// Matrix products by cuBLAS. One stream and a workspace of its own make them give the same bits in every run
/// on the same device (cuBLAS documentation, "Results reproducibility"). Floats are multiplied as floats,
/// never as TF32; bf16 is multiplied exactly and accumulated in float.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/device_kernels.hpp"

namespace kvsim::model::cuda {

/// Whether a product replaces the previous content of its result or is added to it.
enum class Result { replaced, added_to };

class MatrixProduct {
 public:
  explicit MatrixProduct(const Stream& stream);
  ~MatrixProduct();
  MatrixProduct(MatrixProduct&&) noexcept;
  MatrixProduct& operator=(MatrixProduct&&) noexcept;

  /// y [n, out] = x [n, in] W^T, W [out, in]. Out is T or float; with added_to, y is added in float before
  /// the one rounding.
  template <class T, class Out>
  void linear(const T* x, std::uint64_t n, std::uint64_t in, const T* w, std::uint64_t out, Out* y,
              Result result = Result::replaced);

  /// `batch` products, operands `*_batch` elements apart (0: shared); rows of x, y, out `*_pitch` apart.
  template <class X, class Out>
  struct Batch {
    const X *x = nullptr, *y = nullptr;
    Out* out = nullptr;
    std::uint64_t rows = 0, inner = 0, columns = 0;
    std::uint64_t x_pitch = 0, y_pitch = 0, out_pitch = 0;
    std::uint64_t x_batch = 0, y_batch = 0, out_batch = 0;
    std::uint64_t batch = 1;
  };
  /// out [rows, columns] = x [rows, inner] y^T, y [columns, inner].
  template <class T>
  void times_transposed(const Batch<T, float>& batch);
  /// out [rows, columns] = x [rows, inner] y, y [inner, columns].
  template <class T>
  void times(const Batch<T, T>& batch);

  /// Description for the trace: "cuBLAS 13.1.0, no TF32, bf16 accumulated in float32".
  std::string describe() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::model::cuda
