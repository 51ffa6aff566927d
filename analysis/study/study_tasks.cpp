#include "analysis/study/study_tasks.hpp"

#include <algorithm>
#include <filesystem>

#include "analysis/study/study_folder.hpp"
#include "sim/base/sha256.hpp"

namespace kvsim::analysis {
namespace {

/// An analysis with other settings is another task.
std::string task_name(const StudyTrace& trace, const PlannedAnalysis& analysis) {
  std::string settings;
  for (const ParamValue& entry : analysis.settings.entries) settings += entry.name + '=' + entry.text + '\n';
  Sha256 digest;
  digest.update(settings.data(), settings.size());
  return trace.name + '.' + analysis.kind->name + '-' + digest.hex().substr(0, 8);
}

// What a capture, a cell and an analysis cost, as measured on the sample model. Each token costs a part of
// its own and a part per position it sees; both are alike at some two thousand tokens.
constexpr double kCapture = 40, kCell = 1, kAnalysis = 20, kAlike = 2000;

double cost(const StudyTrace& trace) {
  const auto tokens = static_cast<double>(std::max<std::uint64_t>(trace.tokens, 1));
  return tokens * (1 + tokens / kAlike);
}

}  // namespace

double work_of(const StudyPlan& plan, const StudyTrace& trace, const StudyTask& task) {
  return cost(trace) * (task.analysis != nullptr ? kAnalysis : kCell * static_cast<double>(plan.cells()));
}

double work_of_capture(const StudyTrace& trace) {
  return kCapture * cost(trace);
}

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
      out.finished += task_finished(plan.folder, task.name) ? 1 : 0;
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
      if (!task_finished(plan.folder, task.name)) work += work_of(plan, trace, task);
  }
  return work;
}

}  // namespace kvsim::analysis
