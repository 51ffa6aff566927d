#pragma once
/// Tables of kvsim read back from HDF5, as Hdf5Export wrote them.
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// Whether the file is HDF5 that holds results, not a trace or decisions. Throws Error(input) for a file that
/// cannot be opened, or HDF5 that is damaged.
bool holds_hdf5_results(const std::string& path);

/// Its tables with their descriptions, but for that of the traces that were looked at. Throws Error(input).
std::vector<NamedTable> read_hdf5_tables(const std::string& path);

}  // namespace kvsim::analysis
