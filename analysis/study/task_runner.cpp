#include "analysis/study/task_runner.hpp"

#include <algorithm>
#include <filesystem>

#include "analysis/statistics/answer_statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/number_text.hpp"
#include "sim/replay/table_files.hpp"
#include "traces/format/reader.hpp"
#include "traces/model/provenance.hpp"

namespace kvsim::analysis {
namespace {

void append_task_rows(Records& all, Records more) {
  all.columns = std::move(more.columns);
  for (std::vector<Value>& row : more.rows) all.rows.push_back(std::move(row));
}

/// A sequence at a cut, or why it has none there.
struct Cuttable {
  std::optional<trace::Sequence> sequence{};
  std::string problem{};
};

Cuttable sequence_at(const trace::Source& source, const trace::Cut& cut) {
  Cuttable out;
  try {
    out.sequence.emplace(source, 0, cut);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    out.problem = error.what();
  }
  return out;
}

/// What `work` fails at in reading a trace; empty: nothing.
std::string problem_of(const auto& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return error.what();
  }
}

/// What a trace that can be read says of itself.
void describe(const StudyTrace& trace, const trace::Source& source, const trace::Sequence& sequence,
              StudiedTrace& studied) {
  const trace::Header& header = source.header();
  studied.content_sha256 = source.content_sha256();
  studied.model = header.model.name;
  studied.weights_sha256 = header.model.weights_sha256;
  if (studied.workload.empty()) studied.workload = header.capture.workload;
  studied.prompt = sequence.prompt_length();
  studied.decode = sequence.decode_length();
  for (const trace::Cut& cut : trace.cuts)
    if (const auto at = sequence_at(source, cut).sequence)
      studied.cuts.push_back({cut.text(), at->prompt_length(), at->decode_length()});
}

constexpr std::uint64_t kMaxRecordBytes = 1ULL << 20;

StudiedTrace record_at(const std::string& path) {
  return parse_record(read_regular_file(path, kMaxRecordBytes), path);
}

/// What a trace that was not kept said of itself, at the cuts that are studied now.
void recall(const StudyTrace& trace, const std::string& record, StudiedTrace& studied) {
  StudiedTrace known = record_at(record);
  std::erase_if(known.cuts, [&](const StudiedTrace::Cut& cut) {
    return std::ranges::none_of(trace.cuts, [&](const trace::Cut& asked) { return asked.text() == cut.cut; });
  });
  known.name = studied.name;
  if (!studied.workload.empty()) known.workload = studied.workload;
  studied = std::move(known);
}

/// Finished tasks and those to come must be about the same run. Throws Error(usage).
void check_same_content(const StudyTrace& trace, const std::string& record, const StudiedTrace& studied) {
  const std::string was = record_at(record).content_sha256;
  if (was != studied.content_sha256)
    usage_error(
        "was captured again and is " + studied.content_sha256 + " now, where finished tasks are about " + was,
        trace.path,
        "Another processor may round otherwise. Go on where the study was begun, or start anew with "
        "--overwrite.");
}

}  // namespace

StudiedTrace not_studied(const StudyTrace& trace) {
  StudiedTrace out;
  out.name = trace.name;
  out.workload = trace.workload;
  out.captured = trace.prompt.has_value();
  out.problem = trace.problem;
  return out;
}

TaskRunner::TaskRunner(const StudyPlan& plan, StudyFolder& folder, unsigned threads,
                       std::uint64_t memory_limit, const NoteListener& note)
    : plan_(plan), folder_(folder), threads_(threads), memory_limit_(memory_limit), note_(note) {}

TaskRunner::Reading::Reading(const StudyTrace& trace_in)
    : trace(&trace_in), source(trace::open_trace(trace_in.path)), sequence(*source) {}

const TaskRunner::Reading& TaskRunner::read(const StudyTrace& trace) {
  if (!reading_ || reading_->trace != &trace) {
    reading_.reset();
    reading_.emplace(trace);
  }
  return *reading_;
}

TaskRunner::Finding TaskRunner::replay(const StudyTrace& trace, const trace::Source& source,
                                       const StudyTask& task, Progress& progress) const {
  const Cuttable there = sequence_at(source, task.cut);
  Finding out{{records_of({}).columns, {}}, {}};
  if (!there.sequence) {
    out.skipped.push_back({.trace = trace.name, .cut = task.cut.text(), .reason = there.problem});
    return out;
  }
  const trace::Sequence& sequence = *there.sequence;
  const sim::TableFiles tables(sequence);
  sim::Request request = plan_.request();
  request.seed = task.seed;
  request.threads = threads_;
  request.tables = &tables;
  if (const auto lacking = sim::missing_queries(sequence)) {
    if (lacking->kind() != ErrorKind::usage) throw Error(*lacking);
    out.skipped.push_back({.trace = trace.name, .cut = task.cut.text(), .reason = lacking->what()});
    return out;
  }
  const std::uint64_t memory = sim::estimate_bytes(sequence, request);
  if (memory_limit_ > 0 && memory > memory_limit_)
    usage_error("a replay of " + trace.name + " needs about " + bytes_text(memory) +
                    " of memory, the limit is " + bytes_text(memory_limit_),
                "--memory-limit", "Fewer --threads or cells need less.");
  sim::Outcome outcome = sim::replay(sequence, request, progress);
  if (!trace.workload.empty()) outcome.workload = trace.workload;
  for (const Scope scope : plan_.scopes)
    append_task_rows(out.rows, records_of(make_rows(trace.name, request, outcome, scope)));
  for (std::size_t i = 0; i < request.cells.size(); ++i) {
    const policy::Composition& composition = request.cells[i].composition;
    if (const std::string& reason = outcome.cells[i].skipped; !reason.empty())
      out.skipped.push_back({.trace = trace.name,
                             .cut = task.cut.text(),
                             .policy = composition.name,
                             .params = composition.params,
                             .budget = request.cells[i].budget.text,
                             .reason = reason});
  }
  return out;
}

TaskRunner::Finding TaskRunner::analyse(const StudyTrace& trace, const trace::Sequence& sequence,
                                        const PlannedAnalysis& analysis, Progress& progress) const {
  Finding out{{analysis.kind->columns, {}}, {}};
  try {
    out.rows.rows = analysis.kind->measure(
        {trace.name, sequence, analysis.settings, *plan_.registry, threads_, progress});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;  // the trace lacks what it needs
    out.skipped.push_back({.trace = trace.name, .analysis = analysis.table, .reason = error.what()});
  }
  return out;
}

void TaskRunner::load_model() {
  if (model_) return;
  model_ = std::make_unique<Evaluation>(plan_.config.capture->model);
  for (const std::string& text : model_->notes()) note_(text);
}

TaskRunner::Finding TaskRunner::answers(const StudyTrace& trace, const StudyTask& task, Progress& progress) {
  const StudyCapture& capture = *plan_.config.capture;
  const StudyEvaluate& evaluate = plan_.config.evaluate;
  EvaluationOptions options;
  options.cells = plan_.request().cells;
  options.modes = parse_loop_modes(evaluate.mode, "evaluate.mode");
  options.cuts = {task.cut};
  options.max_new_tokens = evaluate.max_new_tokens;
  options.force_answer = evaluate.force == "answer";
  options.elem = capture.elem;
  options.prefill_chunk = capture.prefill_chunk;
  options.seed = task.seed;
  options.threads = threads_;
  options.memory_limit = memory_limit_;
  Finding out{{answer_columns(), {}}, {}};
  const capture::WorkloadItem item =
      item_of(plan_.prompts.prompts[*trace.prompt], folder_.file("prompts.jsonl"));
  try {
    out.rows.rows = model_->answer({&item, 1}, options, progress);
  } catch (const Error& error) {
    const bool too_large = memory_limit_ > 0 && model_->most_bytes() > memory_limit_;
    if (error.kind() != ErrorKind::usage || too_large) throw;
    out.skipped.push_back(
        {.trace = trace.name, .cut = task.cut.text(), .analysis = kAnswersTable, .reason = error.what()});
    return out;
  }
  const auto field = [&](const std::vector<Value>& row, const char* key) -> const std::string& {
    return text(row[out.rows.column(key)]);
  };
  for (const std::vector<Value>& row : out.rows.rows) {
    if (field(row, "skipped").empty()) continue;
    const Skipped one{trace.name,           field(row, "cut"), field(row, "policy"), field(row, "params"),
                      field(row, "budget"), kAnswersTable,     field(row, "skipped")};
    const bool told = !out.skipped.empty() && out.skipped.back() == one;  // in the other mode
    if (!told) out.skipped.push_back(one);
  }
  return out;
}

StudiedTrace TaskRunner::open(const StudyTrace& trace, Progress& progress) {
  StudiedTrace studied = not_studied(trace);
  if (to_capture(plan_, trace)) {
    folder_.make_folder_of("traces/" + trace.name + ".h5");
    capture_prompt(*plan_.config.capture, plan_.prompts.prompts[*trace.prompt], folder_.file("prompts.jsonl"),
                   trace.path, threads_, progress, note_);
  }
  const std::string record = folder_.file(record_file(trace.name));
  std::error_code failed;
  const bool recorded = trace.prompt && trace.read && std::filesystem::exists(record, failed);
  studied.problem = problem_of([&] {
    if (recorded && !std::filesystem::exists(trace.path, failed)) {  // and so every task has finished
      recall(trace, record, studied);
    } else if (trace.read) {
      const Reading& there = read(trace);
      describe(trace, *there.source, there.sequence, studied);
    } else if (trace.prompt) {
      studied.model = model::model_name(plan_.config.capture->model);
      studied.prompt = prompt_tokens(*plan_.config.capture, plan_.prompts.prompts[*trace.prompt]);
    }
  });
  if (recorded && studied.problem.empty()) check_same_content(trace, record, studied);
  return studied;
}

TaskRunner::Finding TaskRunner::found_by(const StudyTask& task, const StudyTrace& trace, Progress& progress) {
  if (task.kind == StudyTask::Kind::answers) return answers(trace, task, progress);
  const Reading& there = read(trace);
  Finding out = task.kind == StudyTask::Kind::replay
                    ? replay(trace, *there.source, task, progress)
                    : analyse(trace, there.sequence, *task.analysis, progress);
  there.source->require_unchanged();
  return out;
}

std::string TaskRunner::run(const StudyTrace& trace, const StudyTask& task, Progress& progress) {
  if (task.kind == StudyTask::Kind::answers) load_model();  // what fails here is no fault of the trace
  Finding found;
  const std::string problem = problem_of([&] { found = found_by(task, trace, progress); });
  require_unchanged(plan_.inputs);
  if (problem.empty()) folder_.save(task.name, found.rows, found.skipped);
  return problem;
}

void TaskRunner::close(const StudyTrace& trace, const StudiedTrace& studied) {
  if (!trace.prompt || !trace.read) return;
  const std::string record = record_file(trace.name);
  std::error_code failed;
  if (plan_.config.capture->keep_traces) {
    std::filesystem::remove(folder_.file(record), failed);
    return;
  }
  if (!std::filesystem::exists(trace.path, failed)) return;  // it was closed by an earlier run
  folder_.write(record, record_text(studied));
  reading_.reset();
  std::filesystem::remove(trace.path, failed);
  if (failed) input_error("cannot be removed: " + failed.message(), trace.path);
}

std::vector<StudiedTrace> TaskRunner::run(Progress& progress, double share) {
  std::vector<StudiedTrace> out;
  const double all = missing_work(plan_);
  double begun = 0;
  const auto begin_part = [&](double work) {
    if (all > 0) progress.begin_part(share * begun / all, share * work / all);
    begun += work;
    progress.check();
  };
  for (const StudyTrace& trace : plan_.traces) {
    StudiedTrace& studied = out.emplace_back(not_studied(trace));
    if (!studied.problem.empty()) continue;
    if (to_capture(plan_, trace)) begin_part(work_of_capture(trace));
    studied = open(trace, progress);
    if (!studied.problem.empty()) continue;
    for (const StudyTask& task : tasks_of(plan_, trace)) {
      if (task_finished(plan_.folder, task.name)) continue;
      begin_part(work_of(plan_, trace, task));
      const std::string problem = run(trace, task, progress);
      if (studied.problem.empty()) studied.problem = problem;
    }
    if (studied.problem.empty()) close(trace, studied);
  }
  return out;
}

}  // namespace kvsim::analysis
