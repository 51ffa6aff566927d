#include "analysis/study/study_results.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/statistics.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/atomic_file.hpp"
#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

/// Lines of a table, without that of its keys.
std::string csv_lines(const Records& records) {
  return csv_text(records).erase(0, csv_text({records.columns, {}}).size());
}

/// Writes tables of the folder and remembers what their columns mean.
class Tables {
 public:
  explicit Tables(StudyFolder& folder) : folder_(folder) { columns_.columns = description_columns(); }

  void describe(const std::string& table, const std::vector<ColumnInfo>& columns) {
    for (const ColumnInfo& column : columns)
      columns_.rows.push_back({table, column.key, column.unit, column.description});
  }
  void write(const std::string& name, const Records& records) {
    folder_.write("tables/" + name + ".csv", csv_text(records));
    describe(name, records.columns);
    names_.push_back(name);
  }
  void finish() {
    folder_.keep_tables(names_);
    folder_.write("columns.csv", csv_text(columns_));
  }

 private:
  StudyFolder& folder_;
  Records columns_;
  std::vector<std::string> names_;
};

/// results.csv, task after task; of its rows, those of the whole model come back.
Records write_rows(StudyFolder& folder, const std::vector<std::string>& replays, std::uint64_t& count) {
  Records whole{records_of({}).columns, {}};
  AtomicFile file(folder.file("results.csv"));
  file.write(csv_text(whole));
  const std::size_t scope = whole.column("scope");
  for (const std::string& task : replays) {
    Records rows = folder.rows(task, whole.columns);
    file.write(csv_lines(rows));
    count += rows.rows.size();
    for (std::vector<Value>& row : rows.rows)
      if (text(row[scope]) == scope_name(Scope::all)) whole.rows.push_back(std::move(row));
  }
  file.commit();
  return whole;
}

void write_statistics(Tables& tables, const Records& whole, const StudyConfig& config,
                      const std::vector<StudiedTrace>& traces, std::vector<std::string>& notes) {
  if (whole.rows.empty()) return;
  std::vector<TraceId> lengths;
  for (const StudiedTrace& trace : traces)
    if (trace.problem.empty())
      for (const StudiedTrace::Cut& cut : trace.cuts)
        lengths.push_back({trace.name, trace.content_sha256, cut.prompt, cut.decode, cut.cut});
  StatisticsOptions options;
  options.metrics = config.metrics;
  options.resamples = config.resamples;
  options.seed = config.statistics_seed;
  options.confidence = config.confidence;
  const Statistics made = statistics_of(whole, lengths, options);
  tables.write("means", made.means);
  tables.write("differences", made.differences);
  tables.write("ranks", made.ranks);
  notes.insert(notes.end(), made.notes.begin(), made.notes.end());
}

/// The table of an analysis. Traces that its kind cannot compare, as those of two models, are no reason to
/// lose the others: that table is empty then.
Records table_of(const StudyFolder& folder, const StudyTable& table, StudyResults& results) {
  Records all{table.kind->columns, {}};
  for (const std::string& task : table.tasks)
    for (std::vector<Value>& row : folder.rows(task, all.columns).rows) all.rows.push_back(std::move(row));
  if (table.kind->summarise == nullptr) return all;
  try {
    return table.kind->summarise(all, *table.settings);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    results.skipped.push_back({{}, {}, {}, {}, {}, table.name, error.what()});
    results.notes.push_back(table.name + " is empty: " + error.what());
    return {table.kind->summary_columns, {}};
  }
}

/// Every reason once: seeds repeat them.
std::vector<Skipped> all_skipped(const StudyFolder& folder, const std::vector<StudiedTrace>& traces,
                                 const std::vector<std::string>& replays,
                                 const std::vector<StudyTable>& tables) {
  std::vector<Skipped> out;
  for (const StudiedTrace& trace : traces)
    if (!trace.problem.empty()) out.push_back({trace.name, {}, {}, {}, {}, {}, trace.problem});
  std::vector<std::string> tasks = replays;
  for (const StudyTable& table : tables) tasks.insert(tasks.end(), table.tasks.begin(), table.tasks.end());
  std::set<std::vector<std::string>> seen;
  for (const std::string& task : tasks) {
    for (const Skipped& one : folder.skipped(task)) {
      if (seen.insert({one.trace, one.cut, one.policy, one.params, one.budget, one.analysis, one.reason})
              .second)
        out.push_back(one);
    }
  }
  return out;
}

/// Models that do not agree in more than their traces.
void tell_models(const std::vector<StudiedTrace>& traces, std::vector<std::string>& notes) {
  std::set<std::pair<std::string, std::string>> models;
  for (const StudiedTrace& trace : traces)
    if (trace.problem.empty()) models.insert({trace.model, trace.weights_sha256});
  if (models.size() < 2) return;
  std::vector<std::string> names;
  for (const auto& [name, weights] : models) names.push_back(name.empty() ? "unnamed" : name);
  notes.push_back("The traces come from " + std::to_string(models.size()) + " models (" + joined(names) +
                  "): means over all of them mix the models.");
}

/// A table nobody can fill is more than a trace's fault.
void tell_empty_tables(const StudyFolder& folder, const std::vector<StudyTable>& tables,
                       std::vector<std::string>& notes) {
  for (const StudyTable& table : tables) {
    std::string reason;
    for (const std::string& task : table.tasks) {
      const std::vector<Skipped> skipped = folder.skipped(task);
      reason = skipped.empty() ? "" : skipped.front().reason;
      if (reason.empty()) break;
    }
    if (!reason.empty()) notes.push_back(table.name + " could be run on no trace: " + reason);
  }
}

}  // namespace

StudyResults write_results(StudyFolder& folder, const StudyConfig& config,
                           const std::vector<StudiedTrace>& traces, const std::vector<std::string>& replays,
                           const std::vector<StudyTable>& tables) {
  StudyResults out;
  tell_models(traces, out.notes);
  Tables written(folder);
  const Records whole = write_rows(folder, replays, out.rows);
  written.describe("results", whole.columns);
  write_statistics(written, whole, config, traces, out.notes);
  out.skipped = all_skipped(folder, traces, replays, tables);
  for (const StudyTable& table : tables) written.write(table.name, table_of(folder, table, out));
  tell_empty_tables(folder, tables, out.notes);
  written.write("skipped", skipped_table(out.skipped));
  written.finish();
  return out;
}

std::string study_text(const boost::json::object& effective, const std::vector<StudiedTrace>& traces,
                       const std::vector<std::string>& notes, bool complete) {
  namespace json = boost::json;
  json::array list;
  for (const StudiedTrace& trace : traces) {
    json::array cuts;
    for (const StudiedTrace::Cut& cut : trace.cuts)
      cuts.push_back(json::object{{"cut", cut.cut}, {"prompt", cut.prompt}, {"decode", cut.decode}});
    json::object entry{
        {"name", trace.name},   {"workload", trace.workload}, {"content_sha256", trace.content_sha256},
        {"model", trace.model}, {"prompt", trace.prompt},     {"decode", trace.decode},
        {"cuts", cuts},         {"captured", trace.captured}};
    if (!trace.problem.empty()) entry["problem"] = trace.problem;
    list.push_back(std::move(entry));
  }
  json::object document = effective;
  document["result"] = json::object{{"schema_version", kSchemaVersion},
                                    {"complete", complete},
                                    {"traces", std::move(list)},
                                    {"notes", json::array(notes.begin(), notes.end())}};
  return readable_json(document);
}

}  // namespace kvsim::analysis
