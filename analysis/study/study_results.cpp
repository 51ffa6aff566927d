#include "analysis/study/study_results.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <set>

#include "analysis/loop/answer_rows.hpp"
#include "analysis/report/winners.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/rows.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "analysis/statistics/statistics.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/partial_file.hpp"

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
  void write(const std::string& name, const Records& table) {
    const Records records = with_budget_numbers(table);
    // Every pair of policies at every budget: the one table that is long.
    const bool packed = name == "differences";
    folder_.write("tables/" + name + (packed ? ".csv.gz" : ".csv"),
                  packed ? gzipped(csv_text(records)) : csv_text(records));
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

/// A file of the folder that rows are appended to, compressed unless they are those of the whole model: steps
/// and lanes have many, and most of what they say repeats.
class RowsFile {
 public:
  RowsFile(const StudyFolder& folder, Scope scope, const std::vector<ColumnInfo>& columns)
      : scope_(scope), file_(folder.file(results_file(scope))) {
    write(csv_text({columns, {}}));
  }
  void add(const Records& rows) {
    if (!rows.rows.empty()) write(csv_lines(rows));
  }
  Scope scope() const { return scope_; }
  void commit() { file_.commit(); }

 private:
  void write(const std::string& text) { file_.write(scope_ == Scope::all ? text : gzipped(text)); }

  Scope scope_;
  AtomicFile file_;
};

/// A file per scope, task after task; the rows of the whole model come back.
Records write_rows(StudyFolder& folder, Tables& tables, const std::vector<std::string>& asked,
                   const std::vector<std::string>& replays, std::uint64_t& count) {
  Records whole{records_of({}).columns, {}};
  std::vector<std::unique_ptr<RowsFile>> files;
  for (const Scope scope : {Scope::all, Scope::layer, Scope::head, Scope::step}) {
    const bool there = std::ranges::find(asked, scope_name(scope)) != asked.end();
    if (scope != Scope::all && (replays.empty() || !there)) continue;
    files.push_back(std::make_unique<RowsFile>(folder, scope, whole.columns));
    const std::string name = results_file(scope);
    tables.describe(name.substr(0, name.find('.')), whole.columns);
  }
  const std::size_t scope = whole.column("scope");
  for (const std::string& task : replays) {
    Records rows = folder.rows(task, whole.columns);
    count += rows.rows.size();
    for (const auto& file : files) {
      Records part{whole.columns, {}};
      for (std::vector<Value>& row : rows.rows)
        if (!row.empty() && text(row[scope]) == scope_name(file->scope()))
          part.rows.push_back(std::move(row));
      file->add(part);
      if (file->scope() == Scope::all) append_rows(whole, std::move(part));
    }
  }
  for (const auto& file : files) file->commit();
  return whole;
}

/// The table of answers; all of its rows come back.
Records write_answers(Tables& tables, const StudyFolder& folder, const StudyAnswers& answers) {
  Records all{answer_columns(), {}};
  for (const std::string& task : answers.tasks) append_rows(all, folder.rows(task, all.columns));
  if (!answers.tasks.empty()) tables.write(kAnswersTable, all);
  return all;
}

/// Lengths of the traces at each cut; a prompt that was answered and not recorded has one for all of them.
std::vector<TraceId> lengths_of(const std::vector<StudiedTrace>& traces) {
  std::vector<TraceId> out;
  for (const StudiedTrace& trace : traces) {
    if (!trace.problem.empty()) continue;
    for (const StudiedTrace::Cut& cut : trace.cuts)
      out.push_back({trace.name, trace.content_sha256, cut.prompt, cut.decode, cut.cut});
    if (trace.cuts.empty()) out.push_back({trace.name, trace.content_sha256, trace.prompt, trace.decode});
  }
  return out;
}

/// What each policy asks of whoever serves it.
Records write_prices(Tables& tables, const StudyPrices& prices, const std::vector<StudiedTrace>& traces,
                     std::vector<std::string>& notes) {
  if (prices.policies.empty()) return {};
  std::optional<PriceQuestion> question = prices.question;
  std::uint64_t longest = 0;
  for (const StudiedTrace& trace : traces) longest = std::max(longest, trace.prompt);
  if (question && question->prompts.empty()) question->prompts = usual_prompts(longest, question->model);
  Records priced;
  try {
    priced = price_records(prices.policies, prices.budgets, question);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    notes.push_back(std::string("The policies could not be priced: ") + error.what());
    priced = price_records(prices.policies, prices.budgets, {});
  }
  tables.write(kPriceTable, priced);
  return priced;
}

/// Who is best at each budget, how sure that is, and what it costs.
bool name_winners(Tables& tables, const Statistics& made, const Records& whole, const Records& answers,
                  const Records& priced) {
  const PriceList prices(priced);
  std::vector<Evidence> cuts;
  for (const std::string& cut : cuts_of(whole.rows.empty() ? made.means : whole))
    cuts.emplace_back(cut, made.means, made.differences, made.ranks, whole, answers);
  const Records best = winners(cuts, prices);
  tables.write(kWinnersTable, best);
  return !best.rows.empty();
}

/// Of both loops in the same tables: they have no metric in common.
Statistics write_statistics(Tables& tables, const Records& whole, const Records& answers,
                            const StudyConfig& config, const std::vector<StudiedTrace>& traces,
                            std::vector<std::string>& notes) {
  if (whole.rows.empty() && answers.rows.empty()) return empty_statistics();
  StatisticsOptions options;
  options.metrics = config.metrics;
  options.resamples = config.statistics.resamples;
  options.seed = config.statistics.seed;
  options.confidence = config.statistics.confidence;
  const std::vector<TraceId> lengths = lengths_of(traces);
  Statistics made = statistics_of(whole, lengths, options);
  std::vector<const Metric*> closed;
  for (const Metric& metric : answer_metrics()) closed.push_back(&metric);
  Statistics more = statistics_of(answers, lengths, options, closed);
  append_rows(made.means, std::move(more.means));
  append_rows(made.differences, std::move(more.differences));
  append_rows(made.ranks, std::move(more.ranks));
  tables.write("means", made.means);
  tables.write("differences", made.differences);
  tables.write("ranks", made.ranks);
  for (std::vector<std::string>* told : {&made.notes, &more.notes})
    for (const std::string& note : *told) add_once(notes, note);
  return made;
}

/// Workloads that the model fails with its full cache.
void tell_failed_workloads(const Records& answers, double least_full, std::vector<std::string>& notes) {
  for (const FullAnswers& each : full_answers(answers))
    if (each.share() < least_full)
      notes.push_back("Cut " + each.cut + ": the full cache answers " + std::to_string(each.right) + " of " +
                      std::to_string(each.asked) + " questions of " +
                      (each.workload.empty() ? "no known workload" : each.workload) +
                      " right, less than statistics.least_full (" + exact_text(least_full) +
                      "): policies are not ranked by its answers" +
                      (each.enough_kept() ? ", but by those that they keep." : "."));
}

/// The table of an analysis. Traces that its kind cannot compare, as those of two models, are no reason to
/// lose the others: that table is empty then.
Records table_of(const StudyFolder& folder, const StudyTable& table, StudyResults& results) {
  Records all{table.kind->columns, {}};
  for (const std::string& task : table.tasks) append_rows(all, folder.rows(task, all.columns));
  if (table.kind->summarise == nullptr) return all;
  try {
    return table.kind->summarise(all, *table.settings);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    results.skipped.push_back({.analysis = table.name, .reason = error.what()});
    results.notes.push_back(table.name + " is empty: " + error.what());
    return {table.kind->summary_columns, {}};
  }
}

/// Keeps only what two reports of one reason agree in: the others are about all traces, cuts or budgets.
void widen(Skipped& told, const Skipped& again) {
  if (told.trace != again.trace) told.trace.clear();
  if (told.cut != again.cut) told.cut.clear();
  if (told.budget != again.budget) told.budget.clear();
}

/// Cells that the closed loop does not serve: each reason of a policy once, and none that a replay of the
/// same cell tells.
std::vector<Skipped> skipped_answers(const StudyFolder& folder, const std::vector<std::string>& tasks,
                                     const std::vector<Skipped>& replayed) {
  std::vector<Skipped> out;
  std::set<Skipped> known(replayed.begin(), replayed.end());
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (const std::string& task : tasks) {
    for (const Skipped& one : folder.skipped(task)) {
      Skipped same = one;
      same.analysis.clear();
      if (known.contains(same)) continue;
      const auto [place, fresh] = places.try_emplace({one.params, one.reason}, out.size());
      if (fresh)
        out.push_back(one);
      else
        widen(out[place->second], one);
    }
  }
  return out;
}

/// Every reason once: seeds repeat them.
std::vector<Skipped> all_skipped(const StudyFolder& folder, const std::vector<StudiedTrace>& traces,
                                 const std::vector<std::string>& replays, const StudyAnswers& answers,
                                 const std::vector<StudyTable>& tables) {
  std::vector<Skipped> out;
  for (const StudiedTrace& trace : traces) {
    if (!trace.problem.empty()) out.push_back({.trace = trace.name, .reason = trace.problem});
    if (trace.problem.empty() && !trace.captured && !answers.tasks.empty())
      out.push_back({.trace = trace.name,
                     .analysis = kAnswersTable,
                     .reason = "is a recorded run: the closed loop answers the prompts of capture alone"});
  }
  std::set<Skipped> seen;
  const auto add = [&](const std::vector<std::string>& tasks) {
    for (const std::string& task : tasks)
      for (const Skipped& one : folder.skipped(task))
        if (seen.insert(one).second) out.push_back(one);
  };
  add(replays);
  for (Skipped& one : skipped_answers(folder, answers.tasks, out)) out.push_back(std::move(one));
  for (const StudyTable& table : tables) add(table.tasks);
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
                           const StudyAnswers& answers, const std::vector<StudyTable>& tables,
                           const StudyPrices& prices, Progress* progress) {
  StudyResults out;
  if (progress != nullptr) progress->total = 4 + tables.size();
  const auto step = [&] {
    if (progress != nullptr) progress->advance();
  };
  tell_models(traces, out.notes);
  Tables written(folder);
  const Records whole = write_rows(folder, written, config.scopes, replays, out.rows);
  step();
  const Records answered = write_answers(written, folder, answers);
  step();
  const Statistics made = write_statistics(
      written, whole, comparable_answers(answered, answers.roles, config.statistics.least_full), config,
      traces, out.notes);
  step();
  const Records priced = write_prices(written, prices, traces, out.notes);
  if (!made.means.rows.empty()) out.winners = name_winners(written, made, whole, answered, priced);
  tell_failed_workloads(answered, config.statistics.least_full, out.notes);
  out.answers = answered.rows.size();
  out.skipped = all_skipped(folder, traces, replays, answers, tables);
  step();
  for (const StudyTable& table : tables) {
    written.write(table.name, table_of(folder, table, out));
    step();
  }
  tell_empty_tables(folder, tables, out.notes);
  written.write("skipped", skipped_table(out.skipped));
  written.finish();
  return out;
}

std::string study_text(const boost::json::object& effective, const std::vector<StudiedTrace>& traces,
                       const std::vector<std::string>& notes, bool complete) {
  namespace json = boost::json;
  json::array list;
  for (const StudiedTrace& trace : traces) list.push_back(trace_entry(trace));
  json::object document = effective;
  document["result"] = json::object{{"schema_version", kSchemaVersion},
                                    {"complete", complete},
                                    {"traces", std::move(list)},
                                    {"notes", json::array(notes.begin(), notes.end())}};
  return readable_json(document);
}

}  // namespace kvsim::analysis
