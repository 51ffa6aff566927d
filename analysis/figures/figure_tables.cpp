#include "analysis/figures/figure_tables.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/report/reported_study.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/reading/read_hdf5.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

/// HDF5 that holds no results is a file of decisions.
bool is_decisions(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char start[4] = {};
  return file.read(start, sizeof start) && std::string_view(start, sizeof start) == "\x89HDF" &&
         !holds_hdf5_results(path);
}

/// Columns of results.
const std::vector<ColumnInfo>& result_columns() {
  static const std::vector<ColumnInfo> kColumns = records_of({}).columns;
  return kColumns;
}

bool has_column(const Records& table, const char* key) {
  return std::any_of(table.columns.begin(), table.columns.end(),
                     [&](const ColumnInfo& column) { return column.key == key; });
}

/// Appends rows, whatever the order of their columns.
void join(Records& all, Records more) {
  std::vector<std::size_t> places;
  for (const ColumnInfo& column : all.columns) places.push_back(more.column(column.key));
  for (std::vector<Value>& row : more.rows) {
    std::vector<Value>& out = all.rows.emplace_back();
    out.reserve(places.size());
    for (const std::size_t place : places) out.push_back(std::move(row[place]));
  }
}

void read_folder(const std::string& folder, FigureTables& tables) {
  ReportedStudy study = read_reported_study(folder);
  join(tables.results, std::move(study.results));
  tables.tables.merge(study.tables);
}

void read_file(const FigureKind& kind, const std::string& path, FigureTables& tables) {
  if (is_decisions(path)) {
    if (tables.decisions) usage_error("one file of decisions at a time", path);
    tables.decisions = sim::read_decisions(path);
    return;
  }
  for (NamedTable& table : read_tables(path)) {
    if (has_column(table.records, "scope") && has_column(table.records, "params")) {
      expect_columns(table.records, result_columns(), path);
      join(tables.results, std::move(table.records));
      continue;
    }
    if (holds_closed_rows(table.records)) {
      Records& answers = tables.tables["answers"];
      if (answers.columns.empty()) answers.columns = table.records.columns;
      join(answers, std::move(table.records));
      continue;
    }
    if (table.name == "results")
      table.name = *kind.table != '\0' ? kind.table : fs::path(path).stem().string();
    expect_columns(table.records, table_columns(table.name), path);
    tables.tables[table.name] = std::move(table.records);
  }
}

/// Traces of `kvsim replay` are paths: their stems are names, if no two are the same.
void shorten_traces(Records& results) {
  const std::size_t column = results.column("trace");
  std::map<std::string, std::string> stem_of;
  std::set<std::string> stems;
  for (const std::string& path : distinct(results, "trace"))
    stems.insert(stem_of[path] = fs::path(path).stem().string());
  if (stems.size() != stem_of.size()) return;
  for (std::vector<Value>& row : results.rows) row[column] = stem_of.at(text(row[column]));
}

void add_statistics(FigureTables& tables) {
  std::vector<TraceId> traces;  // lengths do not reach a figure
  for (const std::string& name : distinct(tables.results, "trace")) traces.push_back({name, "", 0, 0});
  Statistics made = statistics_of(tables.results, traces);
  tables.tables["means"] = std::move(made.means);
  tables.tables["differences"] = std::move(made.differences);
  tables.tables["ranks"] = std::move(made.ranks);
}

}  // namespace

FigureTables figure_tables(const FigureKind& kind, const std::vector<std::string>& files) {
  FigureTables tables;
  tables.results.columns = result_columns();
  tables.source = joined(files, " ");
  std::error_code none;
  bool names = false;  // those of a study are short already
  for (const std::string& file : files) {
    const bool folder = fs::is_directory(file, none);
    names = names || folder;
    if (folder)
      read_folder(file, tables);
    else
      read_file(kind, file, tables);
  }
  if (!names) shorten_traces(tables.results);
  const std::string name = kind.name;
  const bool statistics = name == "quality" || name == "cuts" || name == "differences" || name == "ranks";
  if (statistics && tables.find("means") == nullptr && !tables.results.rows.empty()) add_statistics(tables);
  return tables;
}

}  // namespace kvsim::analysis
