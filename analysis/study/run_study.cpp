#include "analysis/study/run_study.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <new>

#include "analysis/report/report_page.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/study/rank_leader.hpp"
#include "analysis/study/same_study.hpp"
#include "analysis/study/task_runner.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/shortage.hpp"

namespace kvsim::analysis {
namespace {

/// The traces of a study that has not run yet.
std::vector<StudiedTrace> planned_traces(const StudyPlan& plan) {
  std::vector<StudiedTrace> out;
  for (const StudyTrace& trace : plan.traces) out.push_back(not_studied(trace));
  return out;
}

/// Policies that can be served, and the full cache to compare them with.
StudyPrices prices_of(const StudyPlan& plan) {
  StudyPrices out{{}, plan.budgets, plan.price};
  for (const AskedPolicy& policy : plan.policies)
    if (!is_oracle(policy.composition)) out.policies.push_back(policy.composition);
  const policy::Composition full = policy::parse_composition("full", *plan.registry);
  const bool there = std::ranges::any_of(
      out.policies, [&](const policy::Composition& each) { return each.params == full.params; });
  if (!there && !out.policies.empty()) out.policies.push_back(full);
  return out;
}

StudyResults results_of(const StudyPlan& plan, StudyFolder& folder, const std::vector<StudiedTrace>& traces,
                        Progress& progress) {
  std::vector<std::string> replays;
  StudyAnswers answers;
  for (const AskedPolicy& policy : plan.policies) {
    const policy::Composition& each = policy.composition;
    answers.roles[each.params] = role_name(is_oracle(each), has_own_budget(each));
  }
  std::vector<StudyTable> tables;
  for (const PlannedAnalysis& analysis : plan.analyses)
    tables.push_back({analysis.kind, analysis.table, &analysis.settings});
  for (std::size_t i = 0; i < plan.traces.size(); ++i) {
    if (!traces[i].problem.empty()) continue;
    for (const StudyTask& task : tasks_of(plan, plan.traces[i])) {
      switch (task.kind) {
        case StudyTask::Kind::replay:
          replays.push_back(task.name);
          break;
        case StudyTask::Kind::answers:
          answers.tasks.push_back(task.name);
          break;
        case StudyTask::Kind::analysis:
          tables[static_cast<std::size_t>(task.analysis - plan.analyses.data())].tasks.push_back(task.name);
          break;
      }
    }
  }
  return write_results(folder, plan.config, traces, replays, answers, tables, prices_of(plan), &progress);
}

/// What became of every trace, once all tasks have run: here, or among the ranks.
std::vector<StudiedTrace> run_tasks(const StudyPlan& plan, StudyFolder& folder, const RunOptions& options,
                                    Progress& progress, const NoteListener& note) {
  if (options.ranks == nullptr)
    return TaskRunner(plan, folder, options.threads, options.memory_limit, note).run(progress, kTaskShare);
  RankWorker worker(plan, folder, options.threads, options.memory_limit);
  return RankLeader(plan, worker, *options.ranks, study_digest(plan.folder), note).run(progress, kTaskShare);
}

[[noreturn]] void stopped(const StudyPlan& plan, ErrorKind kind, const std::string& why) {
  const TaskCount tasks = count_tasks(plan);
  throw Error(kind, why, "",
              std::to_string(tasks.finished) + " of " + std::to_string(tasks.all) +
                  " tasks are finished and kept. " + how_to_go_on(plan));
}

}  // namespace

std::vector<std::string> StudyOutcome::problems() const {
  std::vector<std::string> out;
  for (const StudiedTrace& trace : traces)
    if (!trace.problem.empty()) out.push_back(trace.problem);
  return out;
}

StudyOutcome run_study(const StudyPlan& plan, const RunOptions& options, Progress& progress,
                       const NoteListener& note) {
  boost::json::object effective = effective_study(plan, plan.folder);
  effective["inputs"] = inputs_document(plan.inputs);
  const bool earlier = check_earlier_study(plan, options.existing, effective, note);
  StudyFolder folder(plan.folder);
  if (earlier) clear_earlier_study(plan, options.existing, folder);
  folder.write(kStudyFile, study_text(effective, planned_traces(plan), {}, false));
  if (plan.config.capture) folder.write("prompts.jsonl", plan.prompts.lines);
  try {
    const std::vector<StudiedTrace> traces = run_tasks(plan, folder, options, progress, note);
    progress.check();
    return {traces, finish_study(plan, folder, effective, traces, progress)};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    stopped(plan, error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    stopped(plan, kShortage, "out of memory");
  }
}

StudyResults finish_study(const StudyPlan& plan, StudyFolder& folder, const boost::json::object& effective,
                          const std::vector<StudiedTrace>& traces, Progress& progress) {
  const double tables = (1 - kTaskShare) / (plan.config.report ? 2 : 1);
  progress.begin_part(kTaskShare, tables);
  StudyResults out = results_of(plan, folder, traces, progress);
  const bool complete =
      std::ranges::all_of(traces, [](const StudiedTrace& trace) { return trace.problem.empty(); });
  // Nothing says complete before its report is there.
  const std::string study = study_text(effective, traces, out.notes, complete);
  progress.begin_part(kTaskShare + tables, 1 - kTaskShare - tables);
  if (plan.config.report) folder.write("report.html", write_report(plan.folder, {.study = study}, progress));
  progress.check();
  folder.write(kStudyFile, study);
  return out;
}

std::string how_to_go_on(const StudyPlan& plan) {
  return "Go on with: kvsim study " + shell_words({plan.file, "-o", plan.folder, "--resume"});
}

}  // namespace kvsim::analysis
