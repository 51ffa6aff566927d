#pragma once
/// Small tables of numbers per layer and head, as people and released codes write them.
#include <string>
#include <vector>

namespace kvsim::sim {

/// Rows of `file`, [layers][heads], rows as long as the file has them; what a number means is the caller's.
///   .tsv, .csv  one line per layer, numbers between tabs or commas
///   .json       [[1, 2], [3, 4]]; [1, 3], one number per layer; {"shares": either of these, ...} or
///               {"tokens": ...}; or {"0-0": ..., "0-1": ...}, "layer-head" with a number or a list of
///               numbers to be averaged
/// At most 64 MiB and 1,048,576 numbers. Throws Error(input) with file and line or key for anything else, and
/// for numbers that are not finite.
std::vector<std::vector<double>> read_matrix(const std::string& file);

}  // namespace kvsim::sim
