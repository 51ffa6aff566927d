#include "analysis/study/job_queue.hpp"

#include <algorithm>
#include <numeric>

namespace kvsim::analysis {
namespace {

double work_of_tasks(const TraceJobs& jobs) {
  return std::accumulate(jobs.tasks.begin(), jobs.tasks.end(), 0.0,
                         [](double sum, const StudyJob& task) { return sum + task.work; });
}

}  // namespace

JobQueue::JobQueue(std::vector<TraceJobs> traces, std::size_t ranks)
    : at_(ranks, kNone), to_close_(ranks), unfinished_(traces.size()) {
  for (TraceJobs& jobs : traces) {
    std::ranges::stable_sort(jobs.tasks,
                             [](const StudyJob& a, const StudyJob& b) { return a.work > b.work; });
    std::ranges::reverse(jobs.tasks);
    State& state = traces_.emplace_back();
    state.left = work_of_tasks(jobs);
    work_ += state.left + jobs.opening;
    state.jobs = std::move(jobs);
  }
  const auto all = [](const State& state) { return state.left + state.jobs.opening; };
  std::ranges::stable_sort(traces_, [&](const State& a, const State& b) { return all(a) > all(b); });
  for (std::size_t place = 0; place < traces_.size(); ++place) {
    const std::size_t trace = traces_[place].jobs.trace;
    places_.resize(std::max(places_.size(), trace + 1), kNone);
    places_[trace] = place;
  }
}

StudyJob JobQueue::take_task(std::size_t place) {
  State& state = traces_[place];
  const StudyJob job = state.jobs.tasks.back();
  state.jobs.tasks.pop_back();
  state.left -= job.work;
  ++state.running;
  --ready_;
  return job;
}

std::optional<StudyJob> JobQueue::next(std::size_t rank) {
  if (!to_close_[rank].empty()) {
    const std::size_t place = to_close_[rank].back();
    to_close_[rank].pop_back();
    return StudyJob{StudyJob::Kind::close, traces_[place].jobs.trace, 0, 0};
  }
  const auto has_task = [&](std::size_t place) {
    return traces_[place].opened && !traces_[place].jobs.tasks.empty();
  };
  if (at_[rank] != kNone && has_task(at_[rank])) return take_task(at_[rank]);
  if (begun_ < traces_.size()) {
    State& state = traces_[begun_];
    at_[rank] = begun_++;
    state.opener = rank;
    return StudyJob{StudyJob::Kind::open, state.jobs.trace, 0, state.jobs.opening};
  }
  if (ready_ == 0) return std::nullopt;
  std::size_t most = kNone;
  for (std::size_t place = 0; place < traces_.size(); ++place)
    if (has_task(place) && (most == kNone || traces_[place].left > traces_[most].left)) most = place;
  at_[rank] = most;
  return take_task(most);
}

void JobQueue::done(const StudyJob& job, bool readable) {
  State& state = traces_[places_[job.trace]];
  work_done_ += job.work;
  state.readable = state.readable && readable;
  switch (job.kind) {
    case StudyJob::Kind::open:
      state.opened = true;
      if (!readable) {
        work_done_ += state.left;
        state.left = 0;
        state.jobs.tasks.clear();
      }
      ready_ += state.jobs.tasks.size();
      break;
    case StudyJob::Kind::task:
      --state.running;
      break;
    case StudyJob::Kind::close:
      --unfinished_;
      return;
  }
  end_if_complete(state);
}

void JobQueue::end_if_complete(State& state) {
  if (state.running > 0 || !state.jobs.tasks.empty()) return;
  if (state.jobs.closes && state.readable)
    to_close_[state.opener].push_back(places_[state.jobs.trace]);
  else
    --unfinished_;
}

}  // namespace kvsim::analysis
