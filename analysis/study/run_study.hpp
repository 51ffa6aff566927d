#pragma once
/// A study from its plan to its report: one call, which prints nothing.
///
///   const StudyPlan plan = plan_study("needles.json", "", policy::builtin(), note);
///   const StudyOutcome outcome = run_study(plan, {}, progress, note);
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/study/earlier_study.hpp"
#include "analysis/study/ranks.hpp"
#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_plan.hpp"
#include "analysis/study/study_results.hpp"
#include "sim/base/error.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::analysis {

/// Of a study's progress, the part of its tasks; the rest is tables and report.
inline constexpr double kTaskShare = 2.0 / 3;

struct RunOptions {
  Existing existing = Existing::refuse;  ///< what to do with a study in the folder
  unsigned threads = 0;                  ///< 0: as many as the machine has; never changes a result
  std::uint64_t memory_limit = 0;        ///< of one replay or closed loop, in bytes; 0: none
  Ranks* ranks = nullptr;  ///< among which the tasks are shared out, this being rank 0; null: it is alone
};

struct StudyOutcome {
  std::vector<StudiedTrace> traces;  ///< in the plan's order
  StudyResults results;              ///< notes, skipped cells and analyses, number of rows

  /// Why traces could not be read, one text each; the results are without these traces.
  std::vector<std::string> problems() const;
};

/// Captures and runs what is missing, and writes results, tables and, if the study asks for one, the report
/// into the plan's folder. `note` takes what a person should know while the study runs; the notes on its
/// results are in the outcome. Finished tasks are kept whatever ends the run, and the message says how to go
/// on. Throws Error(usage) when the folder holds something else, another study runs in it, or a replay or
/// closed loop needs more memory than allowed; Error(input) when a file cannot be written; Error(interrupted)
/// once progress.stop is set. The bytes of the folder do not depend on the number of ranks.
StudyOutcome run_study(const StudyPlan& plan, const RunOptions& options, Progress& progress,
                       const NoteListener& note);

/// Results, tables and, if the study asks for one, the report, of tasks that have all run. The folder's study
/// says `effective` and is complete then.
StudyResults finish_study(const StudyPlan& plan, StudyFolder& folder, const boost::json::object& effective,
                          const std::vector<StudiedTrace>& traces, Progress& progress);

/// What to type to go on with the study: "Go on with: kvsim study ...".
std::string how_to_go_on(const StudyPlan& plan);

}  // namespace kvsim::analysis
