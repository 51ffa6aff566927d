#pragma once
/// Numbers per layer and head from a file: importance of heads, gates of a trained model, shares of a budget.
#include <string>
#include <vector>

#include "policies/api/allocation.hpp"

namespace kvsim::policy {

/// Returns, per lane and layer-major, the numbers of its query heads: one if the file is per KV head, a group
/// if it is per query head. A file with one column gives all heads of a layer the same number. Throws
/// Error(input) when its shape does not fit the request or a number is negative.
std::vector<std::vector<double>> head_matrix(const AllocationRequest& request, const std::string& file);

}  // namespace kvsim::policy
