#pragma once
/// Numbers per layer and head from a file: importance of heads, gates of a trained model, shares of a budget.
#include <string>
#include <vector>

#include "policies/api/allocation.hpp"

namespace kvsim::policy {

/// Per lane, layer-major, the numbers of its query heads: one if the file speaks of KV heads, a group if it
/// speaks of query heads. A file with one column says the same for all heads of a layer.
/// Throws Error(input) when its shape does not fit the request or a number is negative.
std::vector<std::vector<double>> head_matrix(const AllocationRequest& request, const std::string& file);

}  // namespace kvsim::policy
