#pragma once
/// What a study will take, known before it is begun.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/study/study_plan.hpp"
#include "analysis/study/study_tasks.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::analysis {

/// Numbers that the plan alone tells.
struct StudySize {
  std::size_t to_capture = 0, cuts = 0,
              cells = 0;  ///< traces; distinct cuts; cells of all replays and closed loops
  TaskCount tasks;
  std::uint64_t longest = 0;            ///< trace, in tokens
  std::vector<std::string> unreadable;  ///< why, one text per trace
};
StudySize size_of(const StudyPlan& plan);

/// The trace to try the study's work on: the shortest that can be read, of those with a prompt to answer
/// where the closed loop is asked for. Null: nothing is left to run.
const StudyTrace* trace_to_try(const StudyPlan& plan);

struct StudyEstimate {
  std::uint64_t memory = 0;        ///< bytes of the largest replay or closed loop; 0: there is none
  double seconds = 0;              ///< of all tasks that are missing
  double tried_seconds = 0;        ///< of all the work on what was tried
  std::uint64_t tried_tokens = 0;  ///< its length
};

/// Runs `trace` through all its tasks in a temporary folder, or its prompt, shortened, where it is captured
/// from one; everything is estimated from that by length. Nothing is written into the study's folder. Throws
/// as TaskRunner::run() does, and Error(input) when the trace cannot be read.
StudyEstimate estimate_study(const StudyPlan& plan, const StudyTrace& trace, unsigned threads,
                             Progress& progress, const NoteListener& note);

}  // namespace kvsim::analysis
