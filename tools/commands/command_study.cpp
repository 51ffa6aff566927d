// kvsim study: many traces, policies, budgets and seeds, and the analyses of the traces, as one folder of
// results.
#include <algorithm>
#include <ostream>

#include "analysis/results/numbers.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "analysis/study/rank_leader.hpp"
#include "analysis/study/rank_worker.hpp"
#include "analysis/study/run_study.hpp"
#include "analysis/study/study_estimate.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/mistaken_files.hpp"

namespace kvsim::tools {
namespace {

struct StudyOptions {
  std::string file, folder, model;
  bool resume = false, overwrite = false, dry_run = false, print_config = false, quiet = false;
  unsigned threads = 0;
  std::uint64_t memory_limit = 0;
};

std::string about(double seconds) {
  const auto minutes = static_cast<std::uint64_t>(seconds / 60);
  if (minutes >= 120) return analysis::rounded_text(seconds / 3600, 1) + " hours";
  if (minutes >= 2) return analysis::rounded_text(seconds / 60, 1) + " minutes";
  return analysis::rounded_text(std::max(seconds, 0.1), seconds < 10 ? 1 : 0) + " seconds";
}

/// Numbers of traces, tasks and cells, and estimates of memory and time.
void print_estimate(const StudyOptions& options, const analysis::StudyPlan& plan) {
  const analysis::StudySize size = analysis::size_of(plan);
  for (const std::string& problem : size.unreadable) note(problem);
  front_end().results() << "traces   " << plan.traces.size() << " (to capture " << size.to_capture
                        << ", unreadable " << size.unreadable.size() << ")\n"
                        << "tasks    " << size.tasks.all << " (finished " << size.tasks.finished << ", cuts "
                        << size.cuts << ", seeds " << plan.config.seeds.size() << ", analyses "
                        << plan.analyses.size() << ")\n"
                        << "cells    " << size.cells << " (policies " << plan.policies.size() << ", budgets "
                        << plan.budgets.size() << ")\n";
  const analysis::StudyTrace* const trace = analysis::trace_to_try(plan);
  if (trace == nullptr) {
    front_end().results() << "time     nothing is left to run\n";
    return;
  }
  const analysis::StudyEstimate estimate =
      followed("measuring " + trace->name, options.quiet, [&](Progress& progress) {
        return analysis::estimate_study(plan, *trace, options.threads, progress, note);
      });
  if (estimate.memory > 0)
    front_end().results() << "memory   about " << bytes_text(estimate.memory) << " for the longest trace, "
                          << size.longest << " tokens\n";
  front_end().results() << "time     about " << about(estimate.seconds)
                        << (plan.config.report ? " before tables and report" : " before tables") << ", from "
                        << (trace->prompt ? "a shortened " : "") << trace->name << " ("
                        << estimate.tried_tokens << " tokens), which took " << about(estimate.tried_seconds)
                        << '\n';
}

void print_config(const StudyOptions& options, const analysis::StudyPlan& plan) {
  const std::size_t slash = options.file.rfind('/');
  const std::string home = slash == std::string::npos ? "" : options.file.substr(0, slash + 1);
  front_end().results() << analysis::readable_json(analysis::effective_study(plan, home));
}

void print_outcome(const analysis::StudyPlan& plan, const analysis::StudyResults& results) {
  for (const std::string& text : results.notes) note(text);
  if (!results.skipped.empty())
    note(std::to_string(results.skipped.size()) +
         " cells, analyses or traces have no numbers; why: " + plan.folder + "/tables/skipped.csv");
  const bool several = plan.config.scopes.size() > 1 && results.rows > 0;
  front_end().results() << "results  " << plan.folder << "/results.csv"
                        << (several ? " and results-*.csv.gz, " : ", ") << results.rows << " rows\n"
                        << (results.answers > 0 ? "answers  " + plan.folder + "/tables/answers.csv, " +
                                                      std::to_string(results.answers) + " rows\n"
                                                : "")
                        << (results.winners
                                ? "winners  kvsim export " + shell_word(plan.folder) + " --table winners\n"
                                : "")
                        << "tables   " << plan.folder << "/tables, explained in " << plan.folder
                        << "/columns.csv\n";
  if (plan.config.report) front_end().results() << "report   " << plan.folder << "/report.html\n";
}

/// Traces that could not be read, told last.
void fail_for_problems(const analysis::StudyPlan& plan, const analysis::StudyOutcome& outcome) {
  const std::vector<std::string> problems = outcome.problems();
  if (problems.empty()) return;
  input_error(std::to_string(problems.size()) + " of " + std::to_string(outcome.traces.size()) +
                  " traces could not be read, and the results are without them:\n  " +
                  joined(problems, "\n  "),
              plan.folder, "Put them right. " + analysis::how_to_go_on(plan));
}

analysis::RunOptions run_options(const StudyOptions& options, analysis::Ranks* ranks) {
  return {.existing = options.resume      ? analysis::Existing::go_on
                      : options.overwrite ? analysis::Existing::start_anew
                                          : analysis::Existing::refuse,
          .threads = options.threads == 0 && ranks != nullptr ? ranks->threads() : options.threads,
          .memory_limit = options.memory_limit,
          .ranks = ranks};
}

/// `ranks`: among which this is the first; null: it is alone.
void run_whole_study(const StudyOptions& options, analysis::Ranks* ranks) {
  if (options.resume && options.overwrite)
    usage_error("cannot both be", "--resume, --overwrite", "Go on with a study, or start it anew.");
  require_study(options.file);
  analysis::StudyPlan plan =
      analysis::plan_study(options.file, options.folder, front_end().policies(), note, options.model);
  if (options.print_config) return print_config(options, plan);
  if (options.dry_run) return print_estimate(options, plan);
  plan.inputs = analysis::pinned_inputs(plan);
  const analysis::StudyOutcome outcome = followed(plan.config.name, options.quiet, [&](Progress& progress) {
    return analysis::run_study(plan, run_options(options, ranks), progress, note);
  });
  print_outcome(plan, outcome.results);
  fail_for_problems(plan, outcome);
}

/// Says nothing: rank 0 tells what goes wrong here, too.
void help(const StudyOptions& options, analysis::Ranks& ranks) {
  Progress progress;
  const std::shared_ptr<void> followed = front_end().follow(progress, "", true);
  const auto plan = [&] {
    analysis::StudyPlan made = analysis::plan_study(
        options.file, options.folder, front_end().policies(), [](const std::string&) {}, options.model);
    made.inputs = analysis::pinned_inputs(made);
    return made;
  };
  const int code = analysis::help_with_study(ranks, plan, run_options(options, &ranks), progress);
  if (code != 0) throw Error(static_cast<ErrorKind>(code), "");
}

void study(const StudyOptions& options) {
  analysis::Ranks* const ranks = front_end().ranks();
  if (ranks == nullptr) return run_whole_study(options, nullptr);
  if (ranks->rank() > 0) return help(options, *ranks);
  analysis::lead_ranks(*ranks, [&] { run_whole_study(options, ranks); });
}

}  // namespace

void add_study_command(Command app) {
  Command command = app.add_subcommand(
      "study", "Evaluate policies on many traces, with statistics, tables and a report", R"(Examples:
  kvsim study needles.json -o needles
  kvsim study needles.json -o needles --resume
  mpirun -n 4 kvsim study needles.json -o needles
  kvsim config reference
)");
  const auto options = std::make_shared<StudyOptions>();
  command.add_required("STUDY.json", options->file, "", "What to study (kvsim config reference)");
  command.add_option("-o,--output", options->folder, "DIR",
                     "Folder for the results (default: the study's name, in this folder)");
  command.add_option("--model", options->model, "MODEL",
                     "Capture and answer with this model instead of the study's capture.model");
  command.add_flag("--resume", options->resume, "Go on where a study in that folder was stopped");
  command.add_flag("--overwrite", options->overwrite, "Remove a study in that folder and start it anew");
  command.add_flag("--dry-run", options->dry_run,
                   "Say what would be done and about how long it would take; one trace is tried for that");
  command.add_flag("--print-config", options->print_config, "Show the study with every default and stop");
  add_threads(command, options->threads, 1024);
  add_memory_limit(command, options->memory_limit,
                   "Refuse a replay or closed loop that needs more: 512MiB, 2GiB, 2GB");
  command.add_flag("--quiet", options->quiet, "No progress on standard error");
  command.callback([options] { study(*options); });
}

}  // namespace kvsim::tools
