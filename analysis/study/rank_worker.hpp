#pragma once
/// What one rank does for a study: one job at a time, in a thread of its own, so that the rank can listen to
/// the others meanwhile.
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/study/rank_messages.hpp"
#include "analysis/study/ranks.hpp"
#include "analysis/study/run_study.hpp"
#include "analysis/study/same_study.hpp"
#include "analysis/study/task_runner.hpp"

namespace kvsim::analysis {

class RankWorker {
 public:
  /// As those of a TaskRunner.
  RankWorker(const StudyPlan& plan, StudyFolder& folder, unsigned threads, std::uint64_t memory_limit);
  /// Stops the job, if there is one, and waits for its end.
  ~RankWorker();
  RankWorker(const RankWorker&) = delete;
  RankWorker& operator=(const RankWorker&) = delete;

  /// Begins a job: an order to open, close or run a task of a trace. There must be none at work.
  void start(const RankOrder& order);
  bool busy() const { return job_.valid(); }
  /// Of the job at work, from 0 to 1.
  double share() const { return progress_.share(); }
  /// What became of the job, once it has ended: done or failed. None: it is at work, or there is none.
  std::optional<RankReport> report();
  /// Lets jobs fail as interrupted, this one and later ones.
  void stop() { progress_.stop = true; }

 private:
  void work(const RankOrder& order, RankReport& report);

  const StudyPlan& plan_;
  Progress progress_;
  std::vector<std::string> notes_;  ///< of the job at work
  NoteListener note_ = [this](const std::string& text) { notes_.push_back(text); };
  TaskRunner runner_;
  std::map<std::uint64_t, StudiedTrace> opened_;  ///< by this rank
  std::future<RankReport> job_;
};

// The other ranks of a study: they plan it, see that they see the same as rank 0, and do the jobs that it
// gives.

/// Serves rank 0 until it ends the study, and returns the exit code of all ranks. `make_plan`: the plan, as
/// rank 0 makes it. Whatever fails here is told by rank 0. Work stops once progress.stop is set, and so does
/// the study. `lateness`: how long to wait for what rank 0 has written.
int help_with_study(Ranks& ranks, const std::function<StudyPlan()>& make_plan, const RunOptions& options,
                    Progress& progress, std::chrono::milliseconds lateness = kLateness);

}  // namespace kvsim::analysis
