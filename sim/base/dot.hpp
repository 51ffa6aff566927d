#pragma once
/// The product of two vectors, in a fixed order of sums.
#include <cstddef>
#include <vector>

namespace kvsim {

/// Sum of a[i] b[i], in an order that n alone decides.
float dot(const float* a, const float* b, std::size_t n);

/// Rows of `n` numbers each, laid out for products with one vector after the other.
class DotRows {
 public:
  /// Copies `rows` rows, which begin `stride` numbers apart; those of a row are `step` apart.
  DotRows(const float* numbers, std::size_t stride, std::size_t rows, std::size_t n, std::size_t step = 1);

  /// out[r] = dot(a, row r, n) of the first `rows` rows, to the bit.
  void products(const float* a, std::size_t rows, float* out) const;
  /// The same in double, term after term.
  template <class Number>
  void products(const Number* a, std::size_t rows, double* out) const;

 private:
  std::size_t n_;
  std::vector<float> panels_;  ///< [rows / kLanes, n, kLanes], zeros behind the last row
};

}  // namespace kvsim
