#pragma once
/// Which rank does what next, when several processes (ranks) work on one study.
///
/// A rank that is free asks, and gets the next job: nothing is assigned beforehand, so that fast and slow
/// machines, long and short traces, and estimates that are wrong cost at most the length of the last jobs.
/// Traces go to ranks whole, the largest first, as long as there are traces that nobody has begun: what a
/// rank has captured lies in its memory, and with traces that are not kept at most one per rank lies on the
/// disk. Then ranks that are free help with the tasks of the traces at work, the largest first. (Assigning
/// tasks by a hash of their names would need no messages, but leaves ranks idle as soon as tasks differ in
/// length.)
///
/// Jobs are given in an order in which they can be run: the tasks of a trace after it is opened, which
/// captures it, and closing it after its last task, by the rank that opened it. The order never changes a
/// result.
#include <cstddef>
#include <optional>
#include <vector>

namespace kvsim::analysis {

struct StudyJob {
  enum class Kind { open, task, close };
  Kind kind = Kind::open;
  std::size_t trace = 0;
  std::size_t task = 0;  ///< of Kind::task: its place among the tasks of the trace
  double work = 0;       ///< roughly proportional to time
};

/// What is left to do of a trace.
struct TraceJobs {
  std::size_t trace = 0;
  double opening = 0;  ///< work of it
  std::vector<StudyJob> tasks{};
  bool closes = false;  ///< whether it is to be closed after its tasks
};

class JobQueue {
 public:
  JobQueue(std::vector<TraceJobs> traces, std::size_t ranks);

  /// The next job of a rank that is free; none: at the moment, or for ever, there is nothing for it.
  std::optional<StudyJob> next(std::size_t rank);
  /// A job that next() gave is done. `readable`: false when the trace could not be read. If that is so when
  /// it is opened, its tasks fall away; in any case it is not closed.
  void done(const StudyJob& job, bool readable);

  bool empty() const { return unfinished_ == 0; }
  /// Of all that was to do at the start, and of jobs that are done or have fallen away.
  double work() const { return work_; }
  double work_done() const { return work_done_; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct State {
    TraceJobs jobs;   ///< tasks that nobody has begun; the last comes next
    double left = 0;  ///< work of those
    std::size_t opener = kNone;
    bool opened = false, readable = true;
    std::size_t running = 0;  ///< tasks at work
  };

  StudyJob take_task(std::size_t place);
  void end_if_complete(State& state);

  std::vector<State> traces_;                       ///< the largest first
  std::vector<std::size_t> places_;                 ///< in traces_, by trace
  std::vector<std::size_t> at_;                     ///< place of the trace that a rank works on
  std::vector<std::vector<std::size_t>> to_close_;  ///< places, by rank
  std::size_t begun_ = 0;       ///< traces that were given to a rank: the first of traces_
  std::size_t ready_ = 0;       ///< tasks of opened traces that nobody has begun
  std::size_t unfinished_ = 0;  ///< traces
  double work_ = 0, work_done_ = 0;
};

}  // namespace kvsim::analysis
