#pragma once
/// Carries a study out, one task after the other, leaving out what is finished.
#include <map>
#include <string>
#include <vector>

#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_results.hpp"
#include "sim/base/progress.hpp"
#include "tools/study/study_plan.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::tools {

/// A piece of work that is kept once it is finished: a trace's replay at one
/// cut with one seed, or one analysis of it.
struct StudyTask {
  std::string name;                           ///< of its folder under tasks/
  std::uint64_t seed = 0;                     ///< of a replay
  trace::Cut cut{};                           ///< of a replay
  const PlannedAnalysis* analysis = nullptr;  ///< null: a replay
};

/// In the order of their rows. The plan must outlive them.
std::vector<StudyTask> tasks_of(const StudyPlan& plan, const StudyTrace& trace);

/// Whether its trace is yet to be made.
bool to_capture(const StudyTrace& trace);

struct TaskCount {
  std::size_t all = 0, finished = 0;
};
/// Of traces that can be read, as far as is known.
TaskCount count_tasks(const StudyPlan& plan);

/// What is not finished, in a unit of its own that is roughly proportional to time.
double missing_work(const StudyPlan& plan);

class StudyRun {
 public:
  /// `memory_limit` 0: none.
  StudyRun(const StudyPlan& plan, analysis::StudyFolder& folder, unsigned threads,
           std::uint64_t memory_limit);

  /// Captures what is missing and runs every task that is not finished. What a trace's file fails at becomes
  /// its problem, and the others go on. Throws Error(interrupted) once progress.stop is set, Error(usage)
  /// when a replay needs more memory than allowed, Error(input) when the folder cannot be written.
  void run_tasks(Progress& progress);

  /// What became of every trace, in order, once all tasks have run.
  const std::vector<analysis::StudiedTrace>& traces() const { return traces_; }

 private:
  struct Finding {
    analysis::Records rows{};
    std::vector<analysis::Skipped> skipped{};
  };

  void capture(const StudyTrace& trace, Progress& progress);
  void run_trace(const StudyTrace& trace, analysis::StudiedTrace& studied, Progress& progress);
  Finding replay(const StudyTrace& trace, const trace::Source& source, const StudyTask& task,
                 Progress& progress) const;
  Finding analyse(const StudyTrace& trace, const trace::Sequence& sequence, const PlannedAnalysis& analysis,
                  Progress& progress) const;
  void begin_part(double work, Progress& progress);

  const StudyPlan& plan_;
  analysis::StudyFolder& folder_;
  unsigned threads_;
  std::uint64_t memory_limit_;
  std::vector<analysis::StudiedTrace> traces_;
  double work_, begun_ = 0,
                part_ = 0;  ///< of all that is missing, of what came before, of what is at work
};

}  // namespace kvsim::tools
