#pragma once
/// How much a value can change a layer's output through one query head's part of the output projection.
#include <vector>

#include "sim/base/matrix_view.hpp"

namespace kvsim::policy {

enum class Norm { l1, euclidean };

/// Returns the norm of every row of values @ weights; values [n, dim], weights [dim, hidden]. Products are
/// summed in float over dim, as a model computes them, and the norm in double.
std::vector<double> projected_norms(const MatrixView& values, const MatrixView& weights,
                                    Norm norm = Norm::l1);

}  // namespace kvsim::policy
