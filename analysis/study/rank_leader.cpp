#include "analysis/study/rank_leader.hpp"

#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "analysis/study/same_study.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/shortage.hpp"

namespace kvsim::analysis {
namespace {

using std::chrono::steady_clock;

/// What is to do of every trace that can be read.
std::vector<TraceJobs> jobs_of(const StudyPlan& plan) {
  std::vector<TraceJobs> out;
  for (std::size_t i = 0; i < plan.traces.size(); ++i) {
    const StudyTrace& trace = plan.traces[i];
    if (!trace.problem.empty()) continue;
    TraceJobs& jobs = out.emplace_back();
    jobs.trace = i;
    jobs.opening = to_capture(plan, trace) ? work_of_capture(trace) : 0;
    jobs.closes = trace.prompt && trace.read;
    const std::vector<StudyTask> tasks = tasks_of(plan, trace);
    for (std::size_t k = 0; k < tasks.size(); ++k)
      if (!task_finished(plan.folder, tasks[k].name))
        jobs.tasks.push_back({StudyJob::Kind::task, i, k, work_of(plan, trace, tasks[k])});
  }
  return out;
}

RankOrder order_of(const StudyJob& job) {
  RankOrder out;
  out.trace = job.trace;
  out.task = job.task;
  out.kind = job.kind == StudyJob::Kind::open   ? RankOrder::Kind::open
             : job.kind == StudyJob::Kind::task ? RankOrder::Kind::task
                                                : RankOrder::Kind::close;
  return out;
}

}  // namespace

RankLeader::RankLeader(const StudyPlan& plan, RankWorker& worker, Ranks& ranks, std::string study,
                       const NoteListener& note)
    : plan_(plan),
      worker_(worker),
      ranks_(ranks),
      study_(std::move(study)),
      plan_digest_(plan_digest(plan)),
      note_(note),
      queue_(jobs_of(plan), ranks.size()),
      state_(ranks.size()) {
  for (const StudyTrace& trace : plan.traces) traces_.push_back(not_studied(trace));
  state_[0].state = Rank::State::free;
}

std::vector<StudiedTrace> RankLeader::run(Progress& progress, double share) {
  while (true) {
    if (progress.stop && !failure_) failure_.emplace(ErrorKind::interrupted, "interrupted");
    while (const auto message = ranks_.receive()) take(message->from, parse_report(message->text));
    if (const auto report = worker_.report()) take(0, *report);
    if (failure_) {
      if (stop_all()) throw Error(*failure_);
    } else {
      hand_out();
      if (queue_.empty()) break;
    }
    show(progress, share);
    std::this_thread::sleep_for(kRankPause);
  }
  await_tasks(progress);
  for (const auto& [trace, problem] : problems_)
    if (traces_[trace].problem.empty()) traces_[trace].problem = problem.second;
  return traces_;
}

void RankLeader::take(std::size_t rank, const RankReport& report) {
  for (const std::string& text : report.notes)
    if (noted_.insert(text).second) note_(text);
  state_[rank].host = report.host;
  switch (report.kind) {
    case RankReport::Kind::planned:
      return take_plan(rank, report);
    case RankReport::Kind::share:
      state_[rank].share = report.share;
      return;
    case RankReport::Kind::done:
      return take_done(rank, report);
    case RankReport::Kind::failed:
      return take_failure(rank, report);
  }
}

void RankLeader::take_plan(std::size_t rank, const RankReport& report) {
  Rank& state = state_[rank];
  if (report.text != plan_digest_) {
    if (!failure_)
      failure_.emplace(
          ErrorKind::usage,
          "has planned another study: its study file, traces, prompts or kvsim are not those of rank 0",
          "rank " + std::to_string(rank) + " on " + state.host,
          "Give every machine the same files, at the same paths.");
    return;
  }
  state.state = Rank::State::joining;
  RankOrder begin;
  begin.text = study_;
  order(rank, begin);
}

void RankLeader::take_done(std::size_t rank, const RankReport& report) {
  Rank& state = state_[rank];
  changed_ = true;
  if (std::exchange(state.state, Rank::State::free) != Rank::State::busy) return;
  const StudyJob& job = state.job;
  bool readable = report.text.empty();
  if (job.kind == StudyJob::Kind::open) {
    traces_[job.trace] = report.studied.value();
    readable = traces_[job.trace].problem.empty();
  }
  if (job.kind == StudyJob::Kind::task) {
    if (!readable) {
      const auto [known, fresh] = problems_.try_emplace(job.trace, job.task, report.text);
      if (!fresh && job.task < known->second.first) known->second = {job.task, report.text};
    } else if (rank != 0) {
      finished_elsewhere_[tasks_of(plan_, plan_.traces[job.trace])[job.task].name] = rank;
    }
  }
  queue_.done(job, readable);
}

void RankLeader::take_failure(std::size_t rank, const RankReport& report) {
  state_[rank].state = Rank::State::absent;
  if (failure_) return;  // it was told to stop, or is the second one
  failure_.emplace(error_of(rank, report));
}

void RankLeader::order(std::size_t rank, const RankOrder& order) {
  if (rank != 0)
    ranks_.send(rank, message_text(order));
  else if (order.kind == RankOrder::Kind::stop)
    worker_.stop();
  else
    worker_.start(order);
}

void RankLeader::hand_out() {
  if (!std::exchange(changed_, false)) return;
  for (std::size_t rank = 0; rank < state_.size(); ++rank) {
    Rank& state = state_[rank];
    if (state.state != Rank::State::free) continue;
    const std::optional<StudyJob> job = queue_.next(rank);
    if (!job) continue;
    state.job = *job;
    state.share = 0;
    state.state = Rank::State::busy;
    order(rank, order_of(*job));
  }
}

/// Whether every rank has left its job.
bool RankLeader::stop_all() {
  bool left = true;
  for (std::size_t rank = 0; rank < state_.size(); ++rank) {
    if (state_[rank].state != Rank::State::busy) continue;
    left = false;
    if (!std::exchange(state_[rank].stopped, true)) order(rank, {.kind = RankOrder::Kind::stop});
  }
  return left;
}

void RankLeader::show(Progress& progress, double share) const {
  if (queue_.work() <= 0) return;
  double done = queue_.work_done();
  for (const Rank& rank : state_)
    if (rank.state == Rank::State::busy) done += rank.job.work * rank.share;
  if (state_[0].state == Rank::State::busy) done += state_[0].job.work * worker_.share();
  progress.begin_part(share * done / queue_.work(), 0);
}

/// Until this rank sees what the others have written.
void RankLeader::await_tasks(const Progress& progress) const {
  const auto end = steady_clock::now() + kLateness;
  for (const auto& [task, rank] : finished_elsewhere_) {
    while (!task_finished(plan_.folder, task)) {
      progress.check();
      if (steady_clock::now() > end)
        input_error("was written by rank " + std::to_string(rank) + " on " + state_[rank].host +
                        ", and is not seen by rank 0",
                    plan_.folder + "/tasks/" + task, "All ranks must share the folder of the results.");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
}

void lead_ranks(Ranks& ranks, const std::function<void()>& work) {
  const auto end = [&](ErrorKind kind) {
    RankOrder order;
    order.kind = RankOrder::Kind::end;
    order.code = static_cast<int>(kind);
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) ranks.send(rank, message_text(order));
  };
  try {
    work();
  } catch (const Error& error) {
    end(error.kind());
    throw;
  } catch (const std::bad_alloc&) {
    end(kShortage);
    throw;
  } catch (...) {
    end(ErrorKind::bug);
    throw;
  }
  end(ErrorKind{0});
}

}  // namespace kvsim::analysis
