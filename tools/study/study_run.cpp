#include "tools/study/study_run.hpp"

#include <algorithm>
#include <filesystem>

#include "policies/builtin.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "sim/replay/table_files.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::tools {
namespace {

using analysis::Records;
using analysis::Skipped;
using analysis::StudiedTrace;

/// An analysis with other settings is another task.
std::string task_name(const StudyTrace& trace, const PlannedAnalysis& analysis) {
  std::string settings;
  for (const analysis::Settings::Entry& entry : analysis.settings.entries())
    settings += entry.setting.name + '=' + entry.value + '\n';
  Sha256 digest;
  digest.update(settings.data(), settings.size());
  return trace.name + '.' + analysis.kind->name + '-' + digest.hex().substr(0, 8);
}

// Only progress and estimates are reckoned with these: what a capture, a cell and an analysis cost, as
// measured on the sample model, in the same unit. Each token costs a part of its own and a part per position
// it sees; both are alike at some two thousand tokens.
constexpr double kCapture = 40, kCell = 1, kAnalysis = 20, kAlike = 2000;

double cost(const StudyTrace& trace) {
  const auto tokens = static_cast<double>(std::max<std::uint64_t>(trace.tokens, 1));
  return tokens * (1 + tokens / kAlike);
}

double work_of(const StudyPlan& plan, const StudyTrace& trace, const StudyTask& task) {
  return cost(trace) * (task.analysis != nullptr ? kAnalysis : kCell * static_cast<double>(plan.cells()));
}

double work_of_capture(const StudyTrace& trace) {
  return kCapture * cost(trace);
}

void append(Records& all, Records more) {
  all.columns = std::move(more.columns);
  for (std::vector<analysis::Value>& row : more.rows) all.rows.push_back(std::move(row));
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

}  // namespace

bool to_capture(const StudyTrace& trace) {
  std::error_code failed;
  return trace.prompt && !std::filesystem::exists(trace.path, failed);
}

std::vector<StudyTask> tasks_of(const StudyPlan& plan, const StudyTrace& trace) {
  std::vector<StudyTask> out;
  if (!plan.policies.empty())
    for (const trace::Cut& cut : trace.cuts)
      for (const std::uint64_t seed : plan.config.seeds)
        out.push_back(
            {trace.name + ".cut-" + cut.text() + ".seed-" + std::to_string(seed), seed, cut, nullptr});
  for (const PlannedAnalysis& analysis : plan.analyses)
    out.push_back({task_name(trace, analysis), 0, {}, &analysis});
  return out;
}

TaskCount count_tasks(const StudyPlan& plan) {
  TaskCount out;
  for (const StudyTrace& trace : plan.traces) {
    if (!trace.problem.empty()) continue;
    for (const StudyTask& task : tasks_of(plan, trace)) {
      ++out.all;
      out.finished += analysis::task_finished(plan.folder, task.name) ? 1 : 0;
    }
  }
  return out;
}

double missing_work(const StudyPlan& plan) {
  double work = 0;
  for (const StudyTrace& trace : plan.traces) {
    if (!trace.problem.empty()) continue;
    if (to_capture(trace)) work += work_of_capture(trace);
    for (const StudyTask& task : tasks_of(plan, trace))
      if (!analysis::task_finished(plan.folder, task.name)) work += work_of(plan, trace, task);
  }
  return work;
}

StudyRun::StudyRun(const StudyPlan& plan, analysis::StudyFolder& folder, unsigned threads,
                   std::uint64_t memory_limit)
    : plan_(plan),
      folder_(folder),
      threads_(threads),
      memory_limit_(memory_limit),
      work_(missing_work(plan)) {}

void StudyRun::begin_part(double work, Progress& progress) {
  begun_ += part_;
  part_ = work;
  if (work_ > 0) progress.begin_part(begun_ / work_, part_ / work_);
  progress.check();
}

void StudyRun::capture(const StudyTrace& trace, Progress& progress) {
  if (!to_capture(trace)) return;
  begin_part(work_of_capture(trace), progress);
  folder_.make_folder_of("traces/" + trace.name + ".h5");
  capture_prompt(*plan_.config.capture, plan_.prompts.prompts[*trace.prompt], folder_.file("prompts.jsonl"),
                 trace.path, threads_, progress);
}

StudyRun::Finding StudyRun::replay(const StudyTrace& trace, const trace::Source& source,
                                   const StudyTask& task, Progress& progress) const {
  const Cuttable there = sequence_at(source, task.cut);
  Finding out{{analysis::records_of({}).columns, {}}, {}};
  if (!there.sequence) {
    out.skipped.push_back({trace.name, task.cut.text(), {}, {}, {}, {}, there.problem});
    return out;
  }
  const trace::Sequence& sequence = *there.sequence;
  const sim::TableFiles tables(sequence);
  sim::Request request = plan_.request();
  request.seed = task.seed;
  request.threads = threads_;
  request.tables = &tables;
  std::uint64_t memory = 0;
  try {
    memory = sim::estimate_bytes(sequence, request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage || sequence.first_query() <= sequence.first_measured()) throw;
    // A slim trace.
    out.skipped.push_back({trace.name, task.cut.text(), {}, {}, {}, {}, error.what()});
    return out;
  }
  if (memory_limit_ > 0 && memory > memory_limit_)
    usage_error("a replay of " + trace.name + " needs about " + bytes_text(memory) +
                    " of memory, the limit is " + bytes_text(memory_limit_),
                "--memory-limit", "Fewer --threads or cells need less.");
  sim::Outcome outcome = sim::replay(sequence, request, progress);
  if (!trace.workload.empty()) outcome.workload = trace.workload;
  for (const analysis::Scope scope : plan_.scopes)
    append(out.rows, analysis::records_of(analysis::make_rows(trace.name, request, outcome, scope)));
  for (std::size_t i = 0; i < request.cells.size(); ++i) {
    const policy::Composition& composition = request.cells[i].composition;
    if (const std::string& reason = outcome.cells[i].skipped; !reason.empty())
      out.skipped.push_back({trace.name,
                             task.cut.text(),
                             composition.name,
                             composition.params,
                             request.cells[i].budget.text,
                             {},
                             reason});
  }
  return out;
}

StudyRun::Finding StudyRun::analyse(const StudyTrace& trace, const trace::Sequence& sequence,
                                    const PlannedAnalysis& analysis, Progress& progress) const {
  Finding out{{analysis.kind->columns, {}}, {}};
  try {
    out.rows.rows = analysis.kind->measure(
        {trace.name, sequence, analysis.settings, policy::builtin(), threads_, progress});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;  // the trace lacks what it needs
    out.skipped.push_back({trace.name, {}, {}, {}, {}, analysis.table, error.what()});
  }
  return out;
}

void StudyRun::run_trace(const StudyTrace& trace, StudiedTrace& studied, Progress& progress) {
  std::unique_ptr<trace::Source> source;
  std::optional<trace::Sequence> sequence;
  const auto reading = [&](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      studied.problem = error.what();
    }
    return studied.problem.empty();
  };
  const auto open = [&] {
    source = trace::open_trace(trace.path);
    sequence.emplace(*source);
  };
  if (!reading(open)) return;
  const trace::Header& header = source->header();
  studied.content_sha256 = source->content_sha256();
  studied.model = header.model.name;
  studied.weights_sha256 = header.model.weights_sha256;
  if (studied.workload.empty()) studied.workload = header.capture.workload;
  studied.prompt = sequence->prompt_length();
  studied.decode = sequence->decode_length();
  for (const trace::Cut& cut : trace.cuts)
    if (const auto at = sequence_at(*source, cut).sequence)
      studied.cuts.push_back({cut.text(), at->prompt_length(), at->decode_length()});
  for (const StudyTask& task : tasks_of(plan_, trace)) {
    if (analysis::task_finished(plan_.folder, task.name)) continue;
    begin_part(work_of(plan_, trace, task), progress);
    Finding found;
    const auto work = [&] {
      found = task.analysis != nullptr ? analyse(trace, *sequence, *task.analysis, progress)
                                       : replay(trace, *source, task, progress);
    };
    if (!reading(work)) return;
    folder_.save(task.name, found.rows, found.skipped);
  }
}

void StudyRun::run_tasks(Progress& progress) {
  for (const StudyTrace& trace : plan_.traces) {
    StudiedTrace& studied = traces_.emplace_back();
    studied.name = trace.name;
    studied.captured = trace.prompt.has_value();
    studied.workload = trace.workload;
    studied.problem = trace.problem;
    if (!studied.problem.empty()) continue;
    capture(trace, progress);
    run_trace(trace, studied, progress);
  }
}

}  // namespace kvsim::tools
