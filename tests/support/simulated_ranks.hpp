#pragma once
/// The ranks of a study without any work: a clock goes from the end of one job to the end of the next.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "analysis/study/job_queue.hpp"

namespace kvsim::test {

struct SimulatedJob {
  analysis::StudyJob job;
  std::size_t rank = 0;
  double begin = 0, end = 0;
};

struct SimulatedRanks {
  std::vector<SimulatedJob> jobs;  ///< by their ends
  double seconds = 0;              ///< until the last job has ended
  std::size_t most_open = 0;       ///< traces that were begun and not complete at one time
};

/// Runs all jobs. `seconds`: how long a job takes on a rank. `readable`: whether its trace can be read.
inline SimulatedRanks simulate_ranks(
    std::vector<analysis::TraceJobs> traces, std::size_t ranks,
    const std::function<double(const analysis::StudyJob&, std::size_t rank)>& seconds,
    const std::function<bool(const analysis::StudyJob&)>& readable = [](const analysis::StudyJob&) {
      return true;
    }) {
  using analysis::StudyJob;
  std::vector<std::size_t> left(traces.size());  // jobs of each trace
  std::map<std::size_t, std::size_t> place;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    place[traces[i].trace] = i;
    left[i] = 1 + traces[i].tasks.size() + (traces[i].closes ? 1 : 0);
  }
  analysis::JobQueue queue(std::move(traces), ranks);
  SimulatedRanks out;
  std::multimap<double, SimulatedJob> running;
  std::vector<std::size_t> idle(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) idle[rank] = rank;
  std::set<std::size_t> open;
  double now = 0;
  while (!queue.empty()) {
    std::vector<std::size_t> still;
    for (const std::size_t rank : idle) {
      const auto job = queue.next(rank);
      if (!job) {
        still.push_back(rank);
        continue;
      }
      if (job->kind == StudyJob::Kind::open) open.insert(job->trace);
      out.most_open = std::max(out.most_open, open.size());
      const double end = now + seconds(*job, rank);
      running.emplace(end, SimulatedJob{*job, rank, now, end});
    }
    idle = std::move(still);
    if (running.empty()) break;  // every rank waits for ever
    const SimulatedJob ended = running.begin()->second;
    running.erase(running.begin());
    now = ended.end;
    queue.done(ended.job, readable(ended.job));
    if (--left[place[ended.job.trace]] == 0) open.erase(ended.job.trace);
    out.jobs.push_back(ended);
    idle.push_back(ended.rank);
    std::sort(idle.begin(), idle.end());
  }
  out.seconds = now;
  return out;
}

}  // namespace kvsim::test
