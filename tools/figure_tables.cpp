#include "tools/figure_tables.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "analysis/read_csv.hpp"
#include "analysis/rows.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;
using analysis::Records;

bool is_hdf5(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char start[4] = {};
  return file.read(start, sizeof start) && std::string_view(start, sizeof start) == "\x89HDF";
}

/// Columns of results.
const std::vector<analysis::ColumnInfo>& result_columns() {
  static const std::vector<analysis::ColumnInfo> kColumns = analysis::records_of({}).columns;
  return kColumns;
}

bool has_column(const Records& table, const char* key) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const analysis::ColumnInfo& column) { return column.key == key; });
}

/// Appends rows, whatever the order of their columns.
void join(Records& all, const Records& more) {
  std::vector<std::size_t> places;
  for (const analysis::ColumnInfo& column : all.columns) places.push_back(more.column(column.key));
  for (const std::vector<analysis::Value>& row : more.rows) {
    std::vector<analysis::Value>& out = all.rows.emplace_back();
    for (const std::size_t place : places) out.push_back(row[place]);
  }
}

void read_folder(const std::string& folder, analysis::FigureTables& tables) {
  join(tables.results, analysis::read_csv(folder + "/results.csv", result_columns()));
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder + "/tables", none))
    if (entry.path().extension() == ".csv")
      tables.tables[entry.path().stem().string()] = analysis::read_csv(entry.path().string());
}

void read_file(const analysis::FigureKind& kind, const std::string& path, analysis::FigureTables& tables) {
  if (is_hdf5(path)) {
    if (tables.decisions) usage_error("one file of decisions at a time", path);
    tables.decisions = sim::read_decisions(path);
    return;
  }
  Records table = analysis::read_csv(path);
  if (has_column(table, "scope") && has_column(table, "params"))
    return join(tables.results, analysis::read_csv(path, result_columns()));
  const std::string stem = fs::path(path).stem().string();
  tables.tables[*kind.table != '\0' ? kind.table : stem] = std::move(table);
}

/// Traces of `kvsim replay` are paths: their stems are names, if no two are the same.
void shorten_traces(Records& results) {
  const std::size_t column = results.column("trace");
  std::set<std::string> paths, stems;
  for (const std::vector<analysis::Value>& row : results.rows) {
    paths.insert(analysis::text(row[column]));
    stems.insert(fs::path(analysis::text(row[column])).stem().string());
  }
  if (paths.size() != stems.size()) return;
  for (std::vector<analysis::Value>& row : results.rows)
    row[column] = fs::path(analysis::text(row[column])).stem().string();
}

void add_statistics(analysis::FigureTables& tables) {
  const std::size_t column = tables.results.column("trace");
  std::set<std::string> names;
  for (const std::vector<analysis::Value>& row : tables.results.rows)
    names.insert(analysis::text(row[column]));
  std::vector<analysis::Inputs::TraceId> traces;  // lengths do not reach a figure
  for (const std::string& name : names) traces.push_back({name, "", 0, 0});
  analysis::Statistics made = analysis::statistics_of(tables.results, traces);
  tables.tables["means"] = std::move(made.means);
  tables.tables["differences"] = std::move(made.differences);
  tables.tables["ranks"] = std::move(made.ranks);
}

}  // namespace

analysis::FigureTables figure_tables(const analysis::FigureKind& kind,
                                     const std::vector<std::string>& files) {
  analysis::FigureTables tables;
  tables.results.columns = result_columns();
  tables.source = joined(files, " ");
  std::error_code none;
  for (const std::string& file : files) {
    if (fs::is_directory(file, none))
      read_folder(file, tables);
    else
      read_file(kind, file, tables);
  }
  shorten_traces(tables.results);
  const std::string name = kind.name;
  const bool statistics = name == "quality" || name == "differences" || name == "ranks";
  if (statistics && tables.find("means") == nullptr && !tables.results.rows.empty()) add_statistics(tables);
  return tables;
}

}  // namespace kvsim::tools
