#pragma once
/// Results of kvsim read back, whatever they were written as.
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// A file of results (csv, json or jsonl, told by its content), called "results"; the tables of HDF5 results;
/// or the folder of a study: results.csv and every table in tables/, in the order of their names. Throws
/// Error(input); for tables for people with what to do instead. Columns are described as columns.csv of the
/// folder has it, the json document, HDF5, or the rows of a replay.
std::vector<NamedTable> read_tables(const std::string& path);

/// Columns of columns.csv.
std::vector<ColumnInfo> description_columns();

}  // namespace kvsim::analysis
