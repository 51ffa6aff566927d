#pragma once
/// The tasks of a study: what is kept once it is finished, and how much work is left.
#include <string>
#include <vector>

#include "analysis/study/study_plan.hpp"

namespace kvsim::analysis {

/// A replay of a trace at one cut with one seed, the same of the closed loop on its prompt, or an analysis.
struct StudyTask {
  enum class Kind { replay, answers, analysis };
  Kind kind = Kind::replay;
  std::string name;                           ///< of its folder under tasks/
  std::uint64_t seed = 0;                     ///< of a replay or of the closed loop
  trace::Cut cut{};                           ///< of a replay or of the closed loop
  const PlannedAnalysis* analysis = nullptr;  ///< null: none
};

/// In the order of their rows. The plan must outlive them.
std::vector<StudyTask> tasks_of(const StudyPlan& plan, const StudyTrace& trace);

/// Whether its trace is yet to be made, or to be made again: one that is not kept is there for unfinished
/// tasks only.
bool to_capture(const StudyPlan& plan, const StudyTrace& trace);

struct TaskCount {
  std::size_t all = 0, finished = 0;
};
/// Of traces that can be read, as far as is known.
TaskCount count_tasks(const StudyPlan& plan);

/// Work in a unit of its own that is roughly proportional to time: only progress and estimates use it.
double work_of_capture(const StudyTrace& trace);
double work_of(const StudyPlan& plan, const StudyTrace& trace, const StudyTask& task);
/// Of all captures and tasks that are not finished.
double missing_work(const StudyPlan& plan);

}  // namespace kvsim::analysis
