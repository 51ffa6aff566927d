#pragma once
/// Results of kvsim read back, whatever they were written as.
#include <string>
#include <vector>

#include "analysis/records.hpp"

namespace kvsim::analysis {

/// A file of results (csv, json or jsonl, told by its content), called "results"; or the folder of a study:
/// results.csv and every table in tables/, in the order of their names. Throws Error(input); for what kvsim
/// writes otherwise (HDF5, tables for people) with what to do instead.
std::vector<NamedTable> read_tables(const std::string& path);

}  // namespace kvsim::analysis
