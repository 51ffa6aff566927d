#pragma once
/// A read-only view of a row-major matrix of floats; it does not own them.
#include <algorithm>
#include <cstddef>
#include <span>

namespace kvsim {

struct MatrixView {
  const float* data = nullptr;
  std::size_t rows = 0, cols = 0, stride = 0;  ///< stride: elements from one row to the next

  std::span<const float> row(std::size_t i) const { return {data + i * stride, cols}; }
  float operator()(std::size_t i, std::size_t j) const { return data[i * stride + j]; }
  /// Copies it to `to`, row behind row.
  void copy(float* to) const {
    for (std::size_t i = 0; i < rows; ++i) to = std::copy_n(data + i * stride, cols, to);
  }
};

}  // namespace kvsim
