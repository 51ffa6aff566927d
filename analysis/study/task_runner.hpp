#pragma once
/// Runs the tasks of a study, one after the other, and leaves out those that are finished.
#include <memory>
#include <string>
#include <vector>

#include "analysis/loop/evaluation.hpp"
#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_results.hpp"
#include "analysis/study/study_tasks.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::analysis {

class TaskRunner {
 public:
  /// `threads` 0: as many as the machine has; `memory_limit`: bytes of one replay or closed loop, 0: none.
  /// All but the numbers must outlive the runner.
  TaskRunner(const StudyPlan& plan, StudyFolder& folder, unsigned threads, std::uint64_t memory_limit,
             const NoteListener& note);

  /// Captures what is missing and runs every task that is not finished. What a trace's file fails at becomes
  /// its problem, and the others go on. Throws Error(interrupted) once progress.stop is set, Error(usage)
  /// when a replay or a closed loop needs more memory than allowed, Error(input) when the model cannot be
  /// read or the folder cannot be written.
  void run(Progress& progress);

  /// What became of every trace, in order, once all tasks have run.
  const std::vector<StudiedTrace>& traces() const { return traces_; }
  /// Bytes that the largest closed loop was estimated to need; 0: there was none.
  std::uint64_t loop_bytes() const { return model_ ? model_->most_bytes() : 0; }

 private:
  struct Finding {
    Records rows{};
    std::vector<Skipped> skipped{};
  };

  void capture(const StudyTrace& trace, Progress& progress);
  void run_trace(const StudyTrace& trace, StudiedTrace& studied, Progress& progress);
  Finding replay(const StudyTrace& trace, const trace::Source& source, const StudyTask& task,
                 Progress& progress) const;
  Finding analyse(const StudyTrace& trace, const trace::Sequence& sequence, const PlannedAnalysis& analysis,
                  Progress& progress) const;
  void load_model();
  Finding answers(const StudyTrace& trace, const StudyTask& task, Progress& progress);
  void begin_part(double work, Progress& progress);

  const StudyPlan& plan_;
  StudyFolder& folder_;
  unsigned threads_;
  std::uint64_t memory_limit_;
  const NoteListener& note_;
  std::vector<StudiedTrace> traces_;
  std::unique_ptr<Evaluation> model_;  ///< of the closed loop; loaded once, when it is first asked
  /// Work that was missing at the start, that came before the part at work, and of that part.
  double work_, begun_ = 0, part_ = 0;
};

}  // namespace kvsim::analysis
