#pragma once
/// Results of kvsim read back, whatever they were written as.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/results/rows.hpp"

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

// Tables of kvsim read back from csv files, as write_csv wrote them or as others edited them.

/// Of a table, packed or not.
inline constexpr std::uint64_t kMostTableBytes = 1ULL << 30;

/// RFC 4180 with LF or CRLF; an empty field is undefined. A column holds text if is_text_key() says so or
/// some field is no number. An apostrophe before a text that begins as formulas do is write_csv's own.
/// Written again, the result is what was read, if write_csv wrote that. Throws Error(input) with line and
/// column; `where` names the text in messages.
Records parse_csv(std::string_view text, const std::string& where);

/// The same from a file of at most 1 GiB, which may be compressed by gzip, with expect_columns().
Records read_csv(const std::string& path, const std::vector<ColumnInfo>& expected = {});

// Tables of kvsim read back from json: the results of a document, or json lines.

/// `results` of a json document as write_document() writes it, with its columns described if it describes
/// them. Throws Error(input); `where` names the text in messages.
Records parse_json_document(std::string_view text, const std::string& where);
/// One object per line, all with the keys of the first.
Records parse_json_lines(std::string_view text, const std::string& where);

// Tables of kvsim read back from HDF5, as Hdf5Export wrote them.

/// Whether the file is HDF5 that holds results, not a trace or decisions. Throws Error(input) for a file that
/// cannot be opened, or HDF5 that is damaged.
bool holds_hdf5_results(const std::string& path);

/// Its tables with their descriptions, but for that of the traces that were looked at. Throws Error(input).
std::vector<NamedTable> read_hdf5_tables(const std::string& path);

}  // namespace kvsim::analysis
