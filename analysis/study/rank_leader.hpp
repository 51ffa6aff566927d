#pragma once
/// Rank 0 of a study: it gives the jobs to all ranks, itself among them, and takes their reports.
///
/// Who writes: each rank its own finished tasks and captured traces, straight into the folder, under names
/// that no other rank writes; rank 0 study.json, prompts.jsonl, and at the end the tables and the report.
/// What ranks tell each other is who does what: some hundred bytes per job, and as many every second while it
/// runs. Who waits: a rank without a job, until there is one or the study ends; all others while rank 0 makes
/// tables and report.
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/study/job_queue.hpp"
#include "analysis/study/rank_worker.hpp"
#include "analysis/study/ranks.hpp"

namespace kvsim::analysis {

class RankLeader {
 public:
  /// `worker` does the jobs of rank 0. `study`: digest of the study.json that was written.
  RankLeader(const StudyPlan& plan, RankWorker& worker, Ranks& ranks, std::string study,
             const NoteListener& note);

  /// Has every task run that is not finished. Returns what became of every trace, in order, the same as
  /// TaskRunner::run() does. Throws as that does, after all ranks have left their jobs; what another rank
  /// fails at names it.
  std::vector<StudiedTrace> run(Progress& progress, double share);

 private:
  struct Rank {
    enum class State { absent, joining, free, busy };
    State state = State::absent;
    StudyJob job{};
    double share = 0;  ///< of the job
    std::string host{};
    bool stopped = false;
  };

  void take(std::size_t rank, const RankReport& report);
  void take_plan(std::size_t rank, const RankReport& report);
  void take_done(std::size_t rank, const RankReport& report);
  void take_failure(std::size_t rank, const RankReport& report);
  void order(std::size_t rank, const RankOrder& order);
  void hand_out();
  bool stop_all();
  void show(Progress& progress, double share) const;
  void await_tasks(const Progress& progress) const;

  const StudyPlan& plan_;
  RankWorker& worker_;
  Ranks& ranks_;
  std::string study_, plan_digest_;
  const NoteListener& note_;
  JobQueue queue_;
  std::vector<Rank> state_;
  bool changed_ = true;  ///< whether there may be a job for a rank that is free
  std::optional<Error> failure_;
  std::vector<StudiedTrace> traces_;
  /// Of traces whose files fail: the first task in order that does, and why.
  std::map<std::size_t, std::pair<std::size_t, std::string>> problems_;
  std::map<std::string, std::size_t> finished_elsewhere_;  ///< rank, by task
  std::set<std::string> noted_;
};

/// Runs `work`, which leads, and then sends the other ranks home: they end with the exit code of what `work`
/// throws.
void lead_ranks(Ranks& ranks, const std::function<void()>& work);

}  // namespace kvsim::analysis
