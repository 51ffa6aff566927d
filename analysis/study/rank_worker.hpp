#pragma once
/// What one rank does for a study: one job at a time, in a thread of its own, so that the rank can listen to
/// the others meanwhile.
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/study/rank_messages.hpp"
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

}  // namespace kvsim::analysis
