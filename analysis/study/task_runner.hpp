#pragma once
/// Runs the tasks of a study. A trace is opened, then each of its tasks is run, in any order, then it is
/// closed; other processes may run some of its tasks meanwhile, with runners of their own.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/loop/evaluation.hpp"
#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_results.hpp"
#include "analysis/study/study_tasks.hpp"
#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::analysis {

/// What is known of a trace before it is opened.
StudiedTrace not_studied(const StudyTrace& trace);

class TaskRunner {
 public:
  /// `threads` 0: as many as the machine has; `memory_limit`: bytes of one replay or closed loop, 0: none.
  /// All but the numbers must outlive the runner.
  TaskRunner(const StudyPlan& plan, StudyFolder& folder, unsigned threads, std::uint64_t memory_limit,
             const NoteListener& note);

  /// Captures what is missing and runs every task that is not finished, trace by trace. What a trace's file
  /// fails at becomes its problem, and the others go on. Returns what became of every trace, in order. Throws
  /// as the following do. `share`: how much of the progress these tasks are, the first part of it.
  std::vector<StudiedTrace> run(Progress& progress, double share);

  /// Captures the trace if it is missing, and says what it is. It has a problem if it cannot be read; none of
  /// its tasks are to be run then. Throws Error(interrupted) once progress.stop is set, Error(input) when it
  /// cannot be captured or the folder cannot be written, Error(usage) when it was captured again and is
  /// another.
  StudiedTrace open(const StudyTrace& trace, Progress& progress);
  /// Runs a task of a trace that some process has opened, and keeps what it found. Returns why the trace
  /// could not be read; empty: it could. Throws Error(interrupted) once progress.stop is set, Error(usage)
  /// when a replay or a closed loop needs more memory than allowed, Error(input) when the model cannot be
  /// read or the folder cannot be written.
  std::string run(const StudyTrace& trace, const StudyTask& task, Progress& progress);
  /// Once every task of a trace has finished: removes what need not be kept of it. `studied`: as open() gave
  /// it. Throws Error(input).
  void close(const StudyTrace& trace, const StudiedTrace& studied);

  /// Bytes that the largest closed loop was estimated to need; 0: there was none.
  std::uint64_t loop_bytes() const { return model_ ? model_->most_bytes() : 0; }

 private:
  struct Finding {
    Records rows{};
    std::vector<Skipped> skipped{};
  };
  /// A trace being read, and its file's first sequence.
  struct Reading {
    explicit Reading(const StudyTrace& trace_in);
    const StudyTrace* trace;
    std::unique_ptr<trace::Source> source;
    trace::Sequence sequence;
  };

  /// The trace, which stays open until another is read.
  const Reading& read(const StudyTrace& trace);
  Finding found_by(const StudyTask& task, const StudyTrace& trace, Progress& progress);
  Finding replay(const StudyTrace& trace, const trace::Source& source, const StudyTask& task,
                 Progress& progress) const;
  Finding analyse(const StudyTrace& trace, const trace::Sequence& sequence, const PlannedAnalysis& analysis,
                  Progress& progress) const;
  void load_model();
  Finding answers(const StudyTrace& trace, const StudyTask& task, Progress& progress);

  const StudyPlan& plan_;
  StudyFolder& folder_;
  unsigned threads_;
  std::uint64_t memory_limit_;
  const NoteListener& note_;
  std::optional<Reading> reading_;
  std::unique_ptr<Evaluation> model_;  ///< of the closed loop; loaded once, when it is first asked
};

}  // namespace kvsim::analysis
