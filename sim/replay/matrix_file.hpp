#pragma once
/// Reads small tables of numbers per layer and head, in the forms that users and published code write.
#include <string>
#include <vector>

namespace kvsim::sim {

/// Returns the rows of `file`, [layers][heads], each as long as in the file. What a number means is up to the
/// caller.
std::vector<std::vector<double>> read_matrix(const std::string& file);

}  // namespace kvsim::sim
