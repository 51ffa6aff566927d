#include "analysis/report/figure_tables.hpp"

#include <filesystem>
#include <map>
#include <set>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/report/reported_study.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/records.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

/// HDF5 that holds no results is a file of decisions.
bool is_decisions(const std::string& path) {
  return begins_with(path, "\x89HDF") && !holds_hdf5_results(path);
}

/// Columns of results.
const std::vector<ColumnInfo>& result_columns() {
  static const std::vector<ColumnInfo> kColumns = records_of({}).columns;
  return kColumns;
}

/// Columns that must be there, whatever they say.
std::vector<ColumnInfo> columns_called(std::initializer_list<const char*> keys) {
  std::vector<ColumnInfo> out;
  for (const char* key : keys) out.push_back({key, "", ""});
  return out;
}

/// Appends rows of kvsim evaluate. Those of several protocols are not averaged: nothing in a figure would
/// tell them apart.
void join_closed(Records& all, Records more, const std::string& path) {
  const std::vector<ColumnInfo> protocol = columns_called({"turns", "prefill", "positions"});
  expect_columns(more, protocol, path);
  if (all.columns.empty()) all.columns = more.columns;
  append_rows(all, std::move(more));
  for (const ColumnInfo& column : protocol) {
    std::vector<std::string> values = distinct(all, column.key);
    std::erase(values, "stream");  // no choice: some policies take the prompt in no other way
    if (values.size() > 1)
      usage_error("with " + joined(values) + " in column " + column.key + ": answers of several protocols",
                  path, "Draw those of one at a time.");
  }
}

/// Those of kvsim evaluate that figures ask for.
const std::vector<ColumnInfo>& columns_of_answers() {
  static const std::vector<ColumnInfo> kColumns =
      columns_called({"item", "workload", "policy", "params", "budget", "budget_tokens", "cut", "turn",
                      "seed", "mode", "skipped", "right", "right_full", "kept", "kl", "held_bytes"});
  return kColumns;
}

void read_folder(const std::string& folder, FigureTables& tables) {
  ReportedStudy study = read_reported_study(folder);
  append_rows(tables.results, std::move(study.results));
  tables.tables.merge(study.tables);
}

void read_table_file(const FigureKind& kind, const std::string& path, FigureTables& tables) {
  if (is_decisions(path)) {
    if (tables.decisions) usage_error("one file of decisions at a time", path);
    tables.decisions = sim::read_decisions(path);
    return;
  }
  for (NamedTable& table : read_tables(path)) {
    if (has_column(table.records, "scope") && has_column(table.records, "params")) {
      expect_columns(table.records, result_columns(), path);
      append_rows(tables.results, std::move(table.records));
      continue;
    }
    if (holds_closed_rows(table.records)) {
      expect_columns(table.records, columns_of_answers(), path);
      join_closed(tables.tables[kAnswersTable], std::move(table.records), path);
      continue;
    }
    if (holds_drift_rows(table.records)) {
      expect_columns(table.records, table_columns(kDriftTable), path);
      join_closed(tables.tables[kDriftTable], std::move(table.records), path);
      continue;
    }
    if (holds_token_rows(table.records)) {
      expect_columns(table.records, table_columns(kTokensTable), path);
      join_closed(tables.tables[kTokensTable], std::move(table.records), path);
      continue;
    }
    if (table.name == "results")
      table.name = *kind.table != '\0' ? kind.table : fs::path(path).stem().string();
    expect_columns(table.records,
                   table.name == kAnswersTable ? columns_of_answers() : table_columns(table.name), path);
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

/// What kvsim evaluate ranks by default, by the means that a study has of its answers.
void add_answer_statistics(FigureTables& tables, const Records& answers) {
  const Records comparable = comparable_answers(answers, {}, kLeastFull);
  std::vector<TraceId> items;  // lengths do not reach a figure
  for (const std::string& name : distinct(comparable, "trace")) items.push_back({name, "", 0, 0});
  std::vector<const Metric*> metrics;
  for (const Metric& metric : answer_metrics()) metrics.push_back(&metric);
  tables.tables["means"] = statistics_of(comparable, items, {}, metrics).means;
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
      read_table_file(kind, file, tables);
  }
  if (!names) shorten_traces(tables.results);
  const std::string name = kind.name;
  const bool statistics = name == "quality" || name == "cuts" || name == "differences" || name == "ranks";
  if (statistics && tables.find("means") == nullptr && !tables.results.rows.empty()) add_statistics(tables);
  const Records* answers = tables.find(kAnswersTable);
  if (name == "accuracy" && tables.find("means") == nullptr && answers != nullptr)
    add_answer_statistics(tables, *answers);
  return tables;
}

}  // namespace kvsim::analysis
