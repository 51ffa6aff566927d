#pragma once
/// How far a row points away from all others: statistical leverage.
#include <cstddef>
#include <span>
#include <vector>

namespace kvsim::policy {

/// Returns x (X'X + ridge I)^-1 x' of every row x of X, row-major [n, dim], by a Cholesky factor; ridge > 0.
std::vector<double> leverages(std::span<const double> rows, std::size_t dim, double ridge);

}  // namespace kvsim::policy
