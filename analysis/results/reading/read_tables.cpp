#include "analysis/results/reading/read_tables.hpp"

#include <algorithm>
#include <filesystem>

#include "analysis/results/reading/read_csv.hpp"
#include "analysis/results/reading/read_hdf5.hpp"
#include "analysis/results/reading/read_json.hpp"
#include "analysis/results/rows.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder_entries.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/read_file.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

/// Results of `kvsim replay`, which no text format but json describes.
void describe_rows(Records& records) {
  const std::vector<ColumnInfo> known = row_columns();
  const auto is_known = [&](const ColumnInfo& column) {
    return std::ranges::find_if(known, [&](const ColumnInfo& other) { return other.key == column.key; });
  };
  for (const ColumnInfo& column : records.columns)
    if (is_known(column) == known.end()) return;
  for (ColumnInfo& column : records.columns) column = *is_known(column);
}

/// Of a file of text.
Records parse_results(std::string_view text, const std::string& path) {
  // The json documents of kvsim begin with a line of their own; a row of json lines is one line.
  if (text.starts_with("{\n")) return parse_json_document(text, path);
  if (text.starts_with('{')) return parse_json_lines(text, path);
  if (text.starts_with("PAR1"))
    input_error("is Parquet, which kvsim does not read", path,
                "In Python: pandas.read_parquet(PATH).to_csv('rows.csv', index=False)");
  const bool names_columns = text.substr(0, text.find('\n')).find(',') != std::string::npos;
  if (!names_columns || text.starts_with('|'))
    input_error("is no result of kvsim as csv, json, jsonl or HDF5", path,
                "Tables for people (--format table, md) are rounded and not read back.");
  return parse_csv(text, path);
}

/// Units and descriptions where `records` has none, from those that columns.csv has for the table.
void describe(Records& records, std::string_view table, const Records& descriptions) {
  const auto field = [&](const std::vector<Value>& row, const char* key) {
    return exact_field(row[descriptions.column(key)], "");
  };
  for (const std::vector<Value>& row : descriptions.rows) {
    if (field(row, "table") != table) continue;
    for (ColumnInfo& column : records.columns)
      if (column.key == field(row, "key") && column.description.empty())
        column = {column.key, field(row, "unit"), field(row, "description")};
  }
}

std::vector<NamedTable> read_study(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (const Scope scope : {Scope::all, Scope::layer, Scope::head, Scope::step})
    if (fs::is_regular_file(folder / results_file(scope), failed))
      files.push_back(folder / results_file(scope));
  for (const fs::path& path : entries_of(folder / "tables", failed))
    if (const std::string name = path.filename().string();
        name.ends_with(".csv") || name.ends_with(".csv.gz"))
      files.push_back(path);
  if (failed && failed != std::errc::no_such_file_or_directory)
    input_error("cannot be listed: " + failed.message(), (folder / "tables").string());
  if (files.empty())
    input_error("holds neither results.csv nor tables", folder.string(), "Is it the folder of a study?");
  std::vector<NamedTable> out;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    out.push_back({name.substr(0, name.find('.')), read_csv(file.string())});
  }
  if (!fs::is_regular_file(folder / "columns.csv", failed)) return out;
  const Records descriptions = read_csv((folder / "columns.csv").string(), description_columns());
  for (NamedTable& table : out) describe(table.records, table.name, descriptions);
  return out;
}

}  // namespace

std::vector<NamedTable> read_tables(const std::string& path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) return read_study(path);
  std::string content = read_file(path, kMostTableBytes);
  if (is_gzip(content)) content = gunzipped(content, kMostTableBytes, path);
  if (content.starts_with("\x89HDF")) return read_hdf5_tables(path);
  NamedTable table{"results", parse_results(content, path)};
  describe_rows(table.records);
  return {std::move(table)};
}

std::string results_file(Scope scope) {
  return scope == Scope::all ? "results.csv" : std::string("results-") + scope_name(scope) + ".csv.gz";
}

bool is_results_table(std::string_view table) {
  return table == "results" || table.starts_with("results-");
}

void append_rows(Records& all, Records more) {
  std::vector<std::size_t> places;
  for (const ColumnInfo& column : all.columns) places.push_back(more.column(column.key));
  for (std::vector<Value>& row : more.rows) {
    std::vector<Value>& out = all.rows.emplace_back();
    out.reserve(places.size());
    for (const std::size_t place : places) out.push_back(std::move(row[place]));
  }
}

std::vector<ColumnInfo> description_columns() {
  return {{"table", "", "results, results-layer and so on, or a table of tables/"},
          {"key", "", "column"},
          {"unit", "", "of its numbers"},
          {"description", "", "what it says"}};
}

}  // namespace kvsim::analysis
