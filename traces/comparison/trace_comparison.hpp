#pragma once
/// What two traces of the same model and prompt say differently: CPU against CUDA, the native tracer against
/// another, one version against the next.
#include <optional>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/comparison/header_comparison.hpp"
#include "traces/comparison/tensor_difference.hpp"
#include "traces/format/file_trace.hpp"

namespace kvsim::trace {

/// Largest relative error (tensor_difference.hpp) that counts as the same.
struct Tolerance {
  double tensor = 0;  ///< of a layer's whole tensor
  double row = 0;     ///< of each of its rows, one token of one head
};

/// f32: 1e-5. f16 and bf16: eight units of rounding, 8 * 2^-11 and 8 * 2^-8. Runs that round at other places
/// stay below (the sample model's four layers in bf16 throughout against float: two units), another weight or
/// position does not; deep models may take more.
double default_tolerance(Elem elem);
/// A row may err more than the whole by this factor: a short vector, the difference of long ones, keeps the
/// absolute error of these.
inline constexpr double kRowFactor = 16;

/// One tensor of one layer, as far as both traces hold it.
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
  std::optional<double> tolerance{}, row_tolerance{};  ///< none: by the coarser of the two element types
};

/// Headers, then the tensors of the tokens before the first that differs. What one trace alone holds is
/// noted. No tensor is ever in memory as a whole. Throws Error(input) for a value that is not finite.
/// Progress counts values.
TraceComparison compare_traces(const FileTrace& a, const FileTrace& b, const ComparisonOptions& options,
                               Progress& progress);

/// Where to look first. A model computes its stages one from the other, so the first that differs names the
/// cause. Empty when every tensor is within its tolerance.
std::string diagnosis(const TraceComparison& comparison);

}  // namespace kvsim::trace
