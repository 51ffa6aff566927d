#pragma once
/// Measures the difference between two versions of a tensor row by row, as the rows are read.
#include <cstdint>
#include <optional>
#include <span>

namespace kvsim::trace {

/// The difference over the values added so far. A relative error is |a - b| / max(|a|, |b|) with the norm
/// sqrt(sum of squares): it is symmetric in A and B, 0 for equal rows and at most 2.
struct TensorDifference {
  std::uint64_t rows = 0, values = 0;
  std::uint64_t unequal = 0;       ///< number of values that differ
  double relative_error = 0;       ///< over all values (Frobenius norm)
  double largest_row_error = 0;    ///< largest relative error of any row
  std::optional<double> cosine{};  ///< between all values of A and of B; none if one side is all zero

  double largest = 0;  ///< largest |a - b|; the first in reading order if several are equal
  float a = 0, b = 0;  ///< the values there
  std::uint32_t head = 0;
  std::uint64_t row = 0, component = 0;  ///< of that place

  /// Smallest row number whose error exceeds the meter's row tolerance.
  std::optional<std::uint64_t> first_row_beyond{};
};

class DifferenceMeter {
 public:
  explicit DifferenceMeter(double row_tolerance) : row_tolerance_(row_tolerance) {}
  /// Adds one row of a head as A and B store it, finite values of equal number; `row` is the row number that
  /// is reported.
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
