// kvsim study: many traces, policies, budgets and seeds, and the analyses of the traces, as one folder of
// results.
#include <algorithm>
#include <boost/json.hpp>
#include <iostream>
#include <memory>

#include "analysis/results/document.hpp"
#include "analysis/study/study_changes.hpp"
#include "analysis/study/study_fields.hpp"
#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_results.hpp"
#include "sim/base/joined.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/strict_json.hpp"
#include "tools/commands/command.hpp"
#include "tools/printing/progress_display.hpp"
#include "tools/printing/result_output.hpp"
#include "tools/study/study_estimate.hpp"
#include "tools/study/study_plan.hpp"
#include "tools/study/study_run.hpp"
#include "tools/study/write_report.hpp"

namespace kvsim::tools {
namespace {

using analysis::StudiedTrace;

constexpr const char* kExamples = R"(Examples:
  kvsim study needles.json -o needles
  kvsim study needles.json -o needles --resume
  kvsim study needles.json --print-config
  kvsim config reference
)";

struct Options {
  std::string file, folder;
  bool resume = false, overwrite = false, dry_run = false, print_config = false, quiet = false;
  unsigned threads = 0;
  std::uint64_t memory_limit = 0;
};

constexpr const char* kStudyFile = "study.json";
constexpr std::uint64_t kMaxStudyBytes = 64ULL << 20;
constexpr std::size_t kMaxStudyValues = 2'000'000;

/// The study.json of a folder, as it stands there.
boost::json::value study_there(const std::string& folder) {
  const std::string path = folder + '/' + kStudyFile;
  return parse_strict_json(read_file(path, kMaxStudyBytes), path, kMaxStudyValues);
}

/// The number of kvsim's schema of results that it was written with.
std::uint64_t schema_of(const JsonObject& study) {
  return study.has("result") ? study.object("result").integer_or("schema_version", 0, ~0ULL, 0) : 0;
}

/// Goes on only when finished tasks would come out the same.
void check_resumable(const StudyPlan& plan, const boost::json::object& effective) {
  const std::string path = plan.folder + '/' + kStudyFile;
  const boost::json::value there = study_there(plan.folder);
  const std::string remedy =
      "Take the change back, choose another folder with -o, or start anew with --overwrite.";
  if (const std::uint64_t schema = schema_of({there, path}); schema != analysis::kSchemaVersion)
    usage_error("has results of schema " + std::to_string(schema) + ", this kvsim writes schema " +
                    std::to_string(analysis::kSchemaVersion),
                path, "Choose another folder with -o, or start anew with --overwrite.");
  const boost::json::object was =
      analysis::study_document(analysis::read_study(boost::json::serialize(there), path));
  const analysis::StudyChanges changes = analysis::study_changes(was, effective);
  if (changes.conflict)
    usage_error(changes.conflict->path + " was " + changes.conflict->was + " and is now " +
                    changes.conflict->is + ": finished tasks would not fit those to come",
                path, remedy);
  for (const std::string& change : changes.taken_over) note("the study was edited; " + change);
}

/// Traces of the study in a folder. Their names are those of files that may be removed.
std::vector<StudiedTrace> traces_there(const std::string& folder) {
  std::vector<StudiedTrace> out;
  const boost::json::value there = study_there(folder);
  const JsonObject study(there, folder + '/' + kStudyFile);
  if (!study.has("result")) return out;
  const JsonObject result = study.object("result");
  for (const boost::json::value& trace : result.array("traces")) {
    const JsonObject entry(trace, result.path("traces"));
    out.emplace_back();
    out.back().name = entry.text("name");
    out.back().captured = entry.flag_or("captured", false);
    if (out.back().name.find('/') != std::string::npos)
      input_error("'" + out.back().name + "' is no name of a trace of a study", entry.path("name"),
                  "Choose another folder with -o.");
  }
  return out;
}

/// Before the traces of these names that were captured into the folder go.
void keep_inputs(const StudyPlan& plan, const std::vector<std::string>& captured) {
  for (const StudyTrace& trace : plan.traces)
    for (const std::string& name : captured)
      if (!trace.prompt) refuse_to_overwrite_input(plan.folder + "/traces/" + name + ".h5", trace.path);
}

/// Removes the study in the folder, unless this one is about a trace of it.
void start_anew(const StudyPlan& plan) {
  std::vector<std::string> captured;
  for (const StudiedTrace& trace : traces_there(plan.folder))
    if (trace.captured) captured.push_back(trace.name);
  keep_inputs(plan, captured);
  analysis::remove_study(plan.folder, captured);
}

/// Finished work on a trace that the study in the folder does not name is of an earlier edit of it: nobody
/// has compared what the trace holds now with what it held then.
void forget_unknown(const StudyPlan& plan, analysis::StudyFolder& folder) {
  const std::vector<StudiedTrace> known = traces_there(plan.folder);
  for (const StudyTrace& trace : plan.traces) {
    const bool captured = trace.prompt.has_value();
    if (std::any_of(known.begin(), known.end(), [&](const StudiedTrace& other) {
          return other.name == trace.name && other.captured == captured;
        }))
      continue;
    if (captured) keep_inputs(plan, {trace.name});
    folder.forget(trace.name, captured);
  }
}

/// Refuses a folder that is not empty unless told what to do with it.
void check_folder(const Options& options, const StudyPlan& plan) {
  if (analysis::nothing_there(plan.folder)) return;
  const bool study = !analysis::nothing_there(plan.folder + '/' + kStudyFile);
  if (!study) usage_error("is not empty, and no study's folder", plan.folder, "Choose another one with -o.");
  if (!options.resume && !options.overwrite)
    usage_error("is not empty", plan.folder,
                "--resume goes on with the study in it, --overwrite starts anew; -o chooses another folder.");
}

/// What is studied, before anything is known of it.
std::vector<StudiedTrace> planned_traces(const StudyPlan& plan) {
  std::vector<StudiedTrace> out;
  for (const StudyTrace& trace : plan.traces) {
    out.emplace_back();
    out.back().name = trace.name;
    out.back().workload = trace.workload;
    out.back().captured = trace.prompt.has_value();
  }
  return out;
}

std::string to_go_on(const Options& options, const StudyPlan& plan) {
  return "Go on with: kvsim study " + options.file + " -o " + plan.folder + " --resume";
}

/// Runs what is missing. Whatever ends it early, finished tasks are kept, and the message says so.
void run_tasks(const Options& options, const StudyPlan& plan, StudyRun& run) {
  Progress progress;
  try {
    const ProgressDisplay display(progress, plan.config.name, options.quiet);
    run.run_tasks(progress);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    const TaskCount tasks = count_tasks(plan);
    throw Error(error.kind(), error.what(), "",
                std::to_string(tasks.finished) + " of " + std::to_string(tasks.all) +
                    " tasks are finished and kept. " + to_go_on(options, plan));
  }
}

analysis::StudyResults write_results(const StudyPlan& plan, analysis::StudyFolder& folder,
                                     const std::vector<StudiedTrace>& traces) {
  std::vector<std::string> replays;
  std::vector<analysis::StudyTable> tables;
  for (const PlannedAnalysis& analysis : plan.analyses)
    tables.push_back({analysis.kind, analysis.table, &analysis.settings});
  for (std::size_t i = 0; i < plan.traces.size(); ++i) {
    if (!traces[i].problem.empty()) continue;
    for (const StudyTask& task : tasks_of(plan, plan.traces[i])) {
      if (task.analysis == nullptr)
        replays.push_back(task.name);
      else
        tables[static_cast<std::size_t>(task.analysis - plan.analyses.data())].tasks.push_back(task.name);
    }
  }
  return analysis::write_results(folder, plan.config, traces, replays, tables);
}

void tell(const StudyPlan& plan, const analysis::StudyResults& results) {
  for (const std::string& text : results.notes) note(text);
  if (!results.skipped.empty())
    note(std::to_string(results.skipped.size()) +
         " cells, analyses or traces have no numbers; why: " + plan.folder + "/tables/skipped.csv");
  std::cout << "results  " << plan.folder << "/results.csv, " << results.rows << " rows\n"
            << "tables   " << plan.folder << "/tables, explained in " << plan.folder << "/columns.csv\n";
  if (plan.config.report) std::cout << "report   " << plan.folder << "/report.html\n";
}

/// Traces that could not be read, told last.
void fail_for_problems(const Options& options, const StudyPlan& plan,
                       const std::vector<StudiedTrace>& traces) {
  std::vector<std::string> problems;
  for (const StudiedTrace& trace : traces)
    if (!trace.problem.empty()) problems.push_back(trace.problem);
  if (problems.empty()) return;
  input_error(std::to_string(problems.size()) + " of " + std::to_string(traces.size()) +
                  " traces could not be read, and the results are without them:\n  " +
                  joined(problems, "\n  "),
              plan.folder, "Put them right. " + to_go_on(options, plan));
}

void run_study(const Options& options) {
  if (options.resume && options.overwrite)
    usage_error("cannot both be", "--resume, --overwrite", "Go on with a study, or start it anew.");
  const StudyPlan plan = plan_study(options.file, options.folder);
  if (options.print_config) {
    const std::size_t slash = options.file.rfind('/');
    const std::string home = slash == std::string::npos ? "" : options.file.substr(0, slash + 1);
    std::cout << analysis::readable_json(effective_study(plan, home));
    return;
  }
  if (options.dry_run) return print_estimate(std::cout, plan, options.threads, options.quiet);
  check_folder(options, plan);
  const boost::json::object effective = effective_study(plan, plan.folder);
  const bool there = !analysis::nothing_there(plan.folder);
  if (there && options.resume) check_resumable(plan, effective);

  analysis::StudyFolder folder(plan.folder);
  if (there && options.overwrite) start_anew(plan);
  if (there && options.resume) forget_unknown(plan, folder);
  folder.write(kStudyFile, analysis::study_text(effective, planned_traces(plan), {}, false));
  if (plan.config.capture) folder.write("prompts.jsonl", plan.prompts.lines);
  StudyRun run(plan, folder, options.threads, options.memory_limit);
  run_tasks(options, plan, run);
  const analysis::StudyResults results = write_results(plan, folder, run.traces());
  const bool complete = std::none_of(run.traces().begin(), run.traces().end(),
                                     [](const StudiedTrace& trace) { return !trace.problem.empty(); });
  folder.write(kStudyFile, analysis::study_text(effective, run.traces(), results.notes, complete));
  if (plan.config.report) write_report(plan.folder);
  tell(plan, results);
  fail_for_problems(options, plan, run.traces());
}

}  // namespace

void add_study_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("study", "Evaluate policies on many traces, with statistics, tables and a report");
  command->footer(kExamples);
  const auto options = std::make_shared<Options>();
  command->add_option("STUDY.json", options->file, "What to study (kvsim config reference)")->required();
  command
      ->add_option("-o,--output", options->folder,
                   "Folder for the results (default: the study's name, in this folder)")
      ->type_name("DIR");
  command->add_flag("--resume", options->resume, "Go on where a study in that folder was stopped");
  command->add_flag("--overwrite", options->overwrite, "Remove a study in that folder and start it anew");
  command->add_flag("--dry-run", options->dry_run,
                    "Say what would be done and about how long it would take; one trace is tried for that");
  command->add_flag("--print-config", options->print_config, "Show the study with every default and stop");
  command->add_option("--threads", options->threads, "Never changes a result (default: all)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command
      ->add_option("--memory-limit", options->memory_limit,
                   "Refuse a replay that needs more: 512MiB, 2GiB, 2GB")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->type_name("SIZE");
  command->add_flag("--quiet", options->quiet, "No progress on standard error");
  command->callback([options] { run_study(*options); });
}

}  // namespace kvsim::tools
