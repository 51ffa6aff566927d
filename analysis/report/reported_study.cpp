#include "analysis/report/reported_study.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <filesystem>

#include "analysis/cost/cost_rows.hpp"
#include "analysis/cost/price_table.hpp"
#include "analysis/figures/figure_kind.hpp"
#include "analysis/kinds/kind.hpp"
#include "analysis/report/winners.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/drift_metrics.hpp"
#include "analysis/statistics/statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 1ULL << 28;
constexpr std::size_t kMostValues = 10'000'000;

/// What the study says of itself.
void read_result(ReportedStudy& study, const JsonObject& result) {
  constexpr std::uint64_t kMostTokens = 1ULL << 40;
  std::uint64_t unreadable = 0;
  for (const boost::json::value& entry : result.array("traces")) {
    const JsonObject trace(entry, result.path("traces"));
    if (trace.has("problem")) {
      ++unreadable;
      continue;
    }
    study.traces.push_back({trace.text("name"), trace.text_or("content_sha256", ""),
                            trace.integer_or("prompt", 0, kMostTokens, 0),
                            trace.integer_or("decode", 0, kMostTokens, 0)});
    if (const std::string model = trace.text_or("model", ""); !model.empty()) add_once(study.models, model);
  }
  for (const boost::json::value& note : result.array("notes"))
    if (note.is_string()) study.notes.emplace_back(note.as_string());
  if (result.flag_or("complete", false)) return;
  study.incomplete = unreadable > 0
                         ? std::to_string(unreadable) + " of its traces could not be read and are left out."
                         : "it was stopped, or is still at work. Go on with kvsim study --resume.";
}

void read_configuration(ReportedStudy& study, std::string text, const std::string& path) {
  study.configuration = std::move(text);
  const boost::json::value document = parse_strict_json(study.configuration, path, kMostValues);
  const JsonObject config(document, path);
  study.title = config.text_or("title", "");
  if (study.title.empty()) study.title = config.text_or("name", "");
  if (config.has("result")) {
    const JsonObject result = config.object("result");
    if (const std::uint64_t schema = result.integer_or("schema_version", 0, ~0ULL, kSchemaVersion);
        schema != kSchemaVersion)
      input_error("has results of schema " + std::to_string(schema) + ", this kvsim reads schema " +
                      std::to_string(kSchemaVersion),
                  path, "Run the study again: kvsim study " + shell_word(path) + " -o NEW_FOLDER");
    read_result(study, result);
  }
  if (config.has("statistics")) {
    study.confidence = config.object("statistics").number_or("confidence", 0, 1, 0.95);
    study.least_full = config.object("statistics").number_or("least_full", 0, 1, 0);
  }
}

}  // namespace

const Records& ReportedStudy::table(const std::string& name) const {
  static const Records nothing;
  const auto found = tables.find(name);
  return found == tables.end() ? nothing : found->second;
}

std::vector<ColumnInfo> table_columns(std::string_view table) {
  const Statistics empty = empty_statistics();
  if (table == "means") return empty.means.columns;
  if (table == "differences") return empty.differences.columns;
  if (table == "ranks") return empty.ranks.columns;
  if (table == "cost") return cost_columns();
  if (table == kPriceTable) return price_columns();
  if (table == kWinnersTable) return winners_columns();
  if (table == kDriftTable) return drift_columns();
  if (table == kTokensTable) return token_part_columns();
  for (const FigureKind& kind : figure_kinds())
    if (table == kind.table && kind.columns != nullptr) return kind.columns();
  for (const Kind& kind : kinds())
    if (table == kind.name) return kind.summarise == nullptr ? kind.columns : kind.summary_columns;
  return {};
}

ReportedStudy read_reported_study(const std::string& folder, const std::string& configuration) {
  const fs::path root = folder;
  std::error_code failed;
  if (!fs::is_directory(root, failed))
    usage_error("is no folder", folder, "Name the folder that kvsim study -o wrote.");
  if (!fs::exists(root / "results.csv", failed))
    usage_error("no results.csv in it", folder,
                "Name the folder that kvsim study -o wrote; if it was stopped, resume it.");
  ReportedStudy study;
  const std::string file = (root / "study.json").string();
  if (!configuration.empty())
    read_configuration(study, configuration, file);
  else if (fs::exists(file, failed))
    read_configuration(study, read_file(file, kMostBytes), file);
  for (NamedTable& table : read_tables(folder)) {
    const bool results = is_results_table(table.name);
    expect_columns(table.records, results ? records_of({}).columns : table_columns(table.name),
                   (root / (results ? table.name : "tables/" + table.name + ".csv")).string());
    if (!results)
      study.tables[table.name] = std::move(table.records);
    else if (study.results.columns.empty())
      study.results = std::move(table.records);
    else
      append_rows(study.results, std::move(table.records));
  }
  if (study.title.empty()) study.title = "Study of KV cache policies";
  return study;
}

}  // namespace kvsim::analysis
