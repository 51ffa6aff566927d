#pragma once
/// Results of kvsim read back, whatever they were written as.
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/results/scope.hpp"

namespace kvsim::analysis {

/// A file of results (csv, json or jsonl, told by its content, compressed by gzip or not), called "results";
/// the tables of HDF5 results; or the folder of a study: results.csv, the rows of its other scopes
/// ("results-layer") and every table in tables/, in the order of their names. Throws
/// Error(input); for tables for people with what to do instead. Columns are described as columns.csv of the
/// folder has it, the json document, HDF5, or the rows of a replay.
std::vector<NamedTable> read_tables(const std::string& path);

/// The file of a study's folder that has the rows of a scope: results.csv of the whole model, else
/// results-layer.csv.gz and so on.
std::string results_file(Scope scope);
/// Whether a table of a study has rows of a replay, of whatever scope.
bool is_results_table(std::string_view table);

/// Appends rows, whatever the order of their columns. Throws Error(bug) for a column that `more` lacks.
void append_rows(Records& all, Records more);

/// Columns of columns.csv.
std::vector<ColumnInfo> description_columns();

}  // namespace kvsim::analysis
