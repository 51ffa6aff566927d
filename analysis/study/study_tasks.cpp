#include "analysis/study/study_tasks.hpp"

#include <algorithm>
#include <filesystem>

#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"

namespace kvsim::analysis {
namespace {

/// The same work with other settings is another task.
std::string digest_of(const std::string& settings) {
  return sha256_of(settings).substr(0, 8);
}

std::string task_name(const StudyTrace& trace, const PlannedAnalysis& analysis) {
  std::string settings;
  for (const ParamValue& entry : analysis.settings.entries) settings += entry.name + '=' + entry.text + '\n';
  return trace.name + '.' + analysis.kind->name + '-' + digest_of(settings);
}

std::string answers_name(const StudyEvaluate& evaluate) {
  return std::string(kAnswersTable) + '-' +
         digest_of("mode=" + evaluate.mode + "\nmax_new_tokens=" + std::to_string(evaluate.max_new_tokens) +
                   "\nforce=" + evaluate.force + '\n');
}

/// One per cut and seed, called after the trace and `name`.
void add_cells(std::vector<StudyTask>& tasks, const StudyPlan& plan, const StudyTrace& trace,
               StudyTask::Kind kind, const std::string& name) {
  for (const trace::Cut& cut : trace.cuts)
    for (const std::uint64_t seed : plan.config.seeds)
      tasks.push_back(
          {kind, name + ".cut-" + cut.text() + ".seed-" + std::to_string(seed), seed, cut, nullptr});
}

// What a capture, a cell of a replay, the prompt of a closed loop, a cell that answers it and an analysis
// cost, as measured on the sample model. Each token costs a part of its own and a part per position it sees;
// both are alike at some thousand tokens.
constexpr double kCapture = 40, kCell = 1, kPrompt = 40, kAnswers = 1, kAnalysis = 20, kAlike = 1000;

double cost(const StudyTrace& trace) {
  const auto tokens = static_cast<double>(std::max<std::uint64_t>(trace.tokens, 1));
  return tokens * (1 + tokens / kAlike);
}

}  // namespace

double work_of(const StudyPlan& plan, const StudyTrace& trace, const StudyTask& task) {
  const auto cells = static_cast<double>(plan.cells());
  switch (task.kind) {
    case StudyTask::Kind::replay:
      return cost(trace) * kCell * cells;
    case StudyTask::Kind::answers:
      return cost(trace) * (kPrompt + kAnswers * cells);
    case StudyTask::Kind::analysis:
      return cost(trace) * kAnalysis;
  }
  bug("a task without a kind", task.name);
}

double work_of_capture(const StudyTrace& trace) {
  return kCapture * cost(trace);
}

bool to_capture(const StudyPlan& plan, const StudyTrace& trace) {
  std::error_code failed;
  if (!trace.prompt || !trace.read || std::filesystem::exists(trace.path, failed)) return false;
  if (plan.config.capture->keep_traces ||
      !std::filesystem::exists(plan.folder + '/' + record_file(trace.name), failed))
    return true;
  const std::vector<StudyTask> tasks = tasks_of(plan, trace);
  return !std::ranges::all_of(tasks,
                              [&](const StudyTask& task) { return task_finished(plan.folder, task.name); });
}

std::vector<StudyTask> tasks_of(const StudyPlan& plan, const StudyTrace& trace) {
  std::vector<StudyTask> out;
  if (!plan.policies.empty() && plan.config.has_loop("open"))
    add_cells(out, plan, trace, StudyTask::Kind::replay, trace.name);
  if (trace.prompt && plan.config.has_loop("closed"))
    add_cells(out, plan, trace, StudyTask::Kind::answers,
              trace.name + '.' + answers_name(plan.config.evaluate));
  for (const PlannedAnalysis& analysis : plan.analyses)
    out.push_back({StudyTask::Kind::analysis, task_name(trace, analysis), 0, {}, &analysis});
  return out;
}

TaskCount count_tasks(const StudyPlan& plan) {
  TaskCount out;
  for (const StudyTrace& trace : plan.traces) {
    if (!trace.problem.empty()) continue;
    for (const StudyTask& task : tasks_of(plan, trace)) {
      ++out.all;
      out.finished += task_finished(plan.folder, task.name) ? 1 : 0;
    }
  }
  return out;
}

double missing_work(const StudyPlan& plan) {
  double work = 0;
  for (const StudyTrace& trace : plan.traces) {
    if (!trace.problem.empty()) continue;
    if (to_capture(plan, trace)) work += work_of_capture(trace);
    for (const StudyTask& task : tasks_of(plan, trace))
      if (!task_finished(plan.folder, task.name)) work += work_of(plan, trace, task);
  }
  return work;
}

}  // namespace kvsim::analysis
