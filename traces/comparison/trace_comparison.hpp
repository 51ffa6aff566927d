#pragma once
/// Compares two traces of the same model and prompt: CPU against CUDA, the native tracer against another, one
/// version against the next.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/comparison/header_comparison.hpp"
#include "traces/format/file_trace.hpp"

namespace kvsim::trace {

// Measures the difference between two versions of a tensor row by row, as the rows are read.

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

/// Largest relative error (TensorDifference) at which tensors and rows count as equal.
struct Tolerance {
  double tensor = 0;  ///< of a layer's whole tensor
  double row = 0;     ///< of each of its rows, one token of one head
};

/// The default relative tolerance: 1e-5 for f32, eight units of rounding for f16 and bf16, 8 * 2^-11 and 8 *
/// 2^-8. Runs that only round at other places stay below it (the sample model's four layers in bf16
/// throughout against float: two units); runs with another weight or position exceed it. Deep models may need
/// more.
double default_tolerance(Elem elem);
/// Factor from the tolerance of a tensor to that of a row: a short row that is the difference of long vectors
/// has their absolute error, so its relative error is larger.
inline constexpr double kRowFactor = 16;

/// One tensor of one layer, as far as both traces store it.
struct TensorComparison {
  std::string part;  ///< q, k, v, attention (rows of probabilities), column_sum, column_sum_squares or wo
  std::uint32_t layer = 0;
  Tolerance tolerance{};
  TensorDifference difference{};

  bool within() const {
    return difference.relative_error <= tolerance.tensor && difference.largest_row_error <= tolerance.row;
  }
};

struct TraceComparison {
  HeaderComparison header{};
  std::vector<TensorComparison> tensors{};  ///< by layer; within a layer q, k, v, attention, columns, wo

  bool same() const;
};

struct ComparisonOptions {
  std::optional<double> tolerance{}, row_tolerance{};  ///< if absent, the default of the coarser of the two
                                                       ///< element types
};

/// Compares the headers, then the tensors of the tokens before the first that differs. Tensors that only one
/// trace stores are noted. No tensor is ever in memory as a whole. Throws Error(input) for a value that is
/// not finite. Progress counts values.
TraceComparison compare_traces(const FileTrace& a, const FileTrace& b, const ComparisonOptions& options,
                               Progress& progress);

/// The likely cause of the differences. Each stage of a model is computed from the one before, so the first
/// stage that differs points to the cause. Empty when every tensor is within its tolerance.
std::string diagnosis(const TraceComparison& comparison);

}  // namespace kvsim::trace
