#pragma once
/// Matrices as products of two factors of few columns.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvsim::policy {

/// By rows.
struct DenseMatrix {
  std::size_t rows = 0, cols = 0;
  std::vector<float> numbers{};

  DenseMatrix(std::size_t n_rows, std::size_t n_cols)
      : rows(n_rows), cols(n_cols), numbers(n_rows * n_cols) {}
  float* row(std::size_t i) { return numbers.data() + i * cols; }
  const float* row(std::size_t i) const { return numbers.data() + i * cols; }
};

/// Adds to `out` the product of two factors of `rank` columns, at most the smaller side of `error`, that is
/// near `error`: by power iteration (loops >= 1) from a start that follows from `key` (sim/base/rng.hpp). The
/// product is a projection of `error`, so it leaves no more of it than there was, but for the rounding of
/// both factors to 16 bits.
void add_low_rank(const DenseMatrix& error, std::size_t rank, std::size_t loops, std::uint64_t key,
                  DenseMatrix& out);

}  // namespace kvsim::policy
