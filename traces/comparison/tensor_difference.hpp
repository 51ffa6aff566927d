#pragma once
/// How far two versions of a tensor lie apart, measured row by row as they are read.
#include <cstdint>
#include <optional>
#include <span>

namespace kvsim::trace {

/// Of the values seen so far. A relative error is |a - b| / max(|a|, |b|) with the norm sqrt(sum of squares):
/// it does not depend on which side is called A, is 0 for equal rows and at most 2.
struct TensorDifference {
  std::uint64_t rows = 0, values = 0;
  std::uint64_t unequal = 0;       ///< values that are not the same number
  double relative_error = 0;       ///< over all values (Frobenius norm)
  double largest_row_error = 0;    ///< largest relative error of one row
  std::optional<double> cosine{};  ///< between all values of A and of B; none where one side is all zero

  double largest = 0;  ///< largest |a - b|; the first of several in reading order
  float a = 0, b = 0;  ///< the values there
  std::uint32_t head = 0;
  std::uint64_t row = 0, component = 0;  ///< where that is

  /// Smallest row number whose error exceeds the meter's row tolerance.
  std::optional<std::uint64_t> first_row_beyond{};
};

class DifferenceMeter {
 public:
  explicit DifferenceMeter(double row_tolerance) : row_tolerance_(row_tolerance) {}
  /// One row of a head, as A and as B have it; `row` is what the place calls it. Equal sizes, finite values.
  void add(std::uint32_t head, std::uint64_t row, std::span<const float> a, std::span<const float> b);
  const TensorDifference& difference();

 private:
  struct Sums {
    double aa = 0, bb = 0, ab = 0, difference = 0;  ///< squares of A, of B, products, squares of a - b
    double relative_error() const;
  };

  double row_tolerance_;
  Sums sums_;
  TensorDifference found_;
};

}  // namespace kvsim::trace
