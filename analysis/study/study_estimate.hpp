#pragma once
/// What a study will take, known before it is begun.
#include <cstdint>
#include <optional>
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
  std::uint64_t memory = 0;      ///< bytes of the largest replay or closed loop; 0: there is none
  double seconds = 0;            ///< of everything that is missing, tables and report included
  double tried_seconds = 0;      ///< of all the work on the trace that was tried
  double finishing_seconds = 0;  ///< of tables and report, made of that trace
};

/// Captures `trace` (if it is one to capture) and runs it through all its tasks in a temporary folder; the
/// other traces are estimated from that by their lengths, and tables and report are made of what it gave.
/// Nothing is written into the study's folder. Throws as TaskRunner::run() does, and Error(input) when the
/// trace cannot be read.
StudyEstimate estimate_study(const StudyPlan& plan, const StudyTrace& trace, unsigned threads,
                             Progress& progress, const NoteListener& note);

}  // namespace kvsim::analysis
