// Who does what next, played through for ranks that take any time for a job.
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/simulated_ranks.hpp"

namespace kvsim::analysis::test_job_queue {

using kvsim::test::simulate_ranks;
using kvsim::test::SimulatedJob;
using kvsim::test::SimulatedRanks;
using Kind = StudyJob::Kind;

namespace {

TraceJobs trace_jobs(std::size_t trace, double opening, const std::vector<double>& tasks,
                     bool closes = true) {
  TraceJobs out;
  out.trace = trace;
  out.opening = opening;
  out.closes = closes;
  for (std::size_t i = 0; i < tasks.size(); ++i) out.tasks.push_back({Kind::task, trace, i, tasks[i]});
  return out;
}

/// A whole number.
double below(std::mt19937& random, unsigned end) {
  return std::uniform_int_distribution<unsigned>(0, end - 1)(random);
}

std::vector<TraceJobs> random_traces(std::mt19937& random, std::size_t count) {
  std::vector<TraceJobs> out;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> tasks(random() % 6);
    for (double& task : tasks) task = 1 + below(random, 50);
    out.push_back(trace_jobs(3 * i, below(random, 20), tasks, random() % 2 == 0));
  }
  return out;
}

double total(const std::vector<TraceJobs>& traces) {
  double out = 0;
  for (const TraceJobs& trace : traces)
    out += trace.opening + std::accumulate(trace.tasks.begin(), trace.tasks.end(), 0.0,
                                           [](double sum, const StudyJob& job) { return sum + job.work; });
  return out;
}

}  // namespace

TEST_CASE("job queue: every job is given once, in an order in which it can be run, to any number of ranks") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::vector<TraceJobs> traces = random_traces(random, random() % 12);
    const std::size_t ranks = 1 + random() % 9;
    // Estimates may be as wrong as they like.
    const SimulatedRanks run =
        simulate_ranks(traces, ranks, [&](const StudyJob&, std::size_t) { return below(random, 100); });
    std::map<std::pair<std::size_t, std::size_t>, int> tasks;
    std::map<std::size_t, SimulatedJob> opened, closed;
    std::map<std::size_t, double> last;
    std::vector<double> free(ranks);
    for (const SimulatedJob& each : run.jobs) {
      if (each.job.kind == Kind::open) CHECK(opened.emplace(each.job.trace, each).second);
      if (each.job.kind == Kind::close) CHECK(closed.emplace(each.job.trace, each).second);
      if (each.job.kind != Kind::task) continue;
      ++tasks[{each.job.trace, each.job.task}];
      REQUIRE(opened.contains(each.job.trace));
      CHECK(opened.at(each.job.trace).end <= each.begin);
      last[each.job.trace] = std::max(last[each.job.trace], each.end);
    }
    CHECK(opened.size() == traces.size());
    for (const TraceJobs& trace : traces) {
      for (const StudyJob& task : trace.tasks) CHECK(tasks[{trace.trace, task.task}] == 1);
      REQUIRE(closed.contains(trace.trace) == trace.closes);
      if (!trace.closes) continue;
      CHECK(closed.at(trace.trace).begin >= last[trace.trace]);
      CHECK(closed.at(trace.trace).rank == opened.at(trace.trace).rank);
    }
    CHECK(std::accumulate(tasks.begin(), tasks.end(), 0,
                          [](int sum, const auto& entry) { return sum + entry.second; }) ==
          static_cast<int>(std::accumulate(
              traces.begin(), traces.end(), std::size_t{0},
              [](std::size_t sum, const TraceJobs& trace) { return sum + trace.tasks.size(); })));
  }
}

TEST_CASE("job queue: traces that are not complete are at most as many as ranks") {
  std::vector<TraceJobs> traces;
  for (std::size_t i = 0; i < 40; ++i)
    traces.push_back(trace_jobs(i, 5, std::vector<double>(8, static_cast<double>(1 + i % 4))));
  for (const std::size_t ranks : {1, 2, 3, 7, 40, 100}) {
    const SimulatedRanks run =
        simulate_ranks(traces, ranks, [](const StudyJob& job, std::size_t) { return job.work; });
    CHECK(run.most_open <= std::min<std::size_t>(ranks, 40));
  }
}

TEST_CASE("job queue: a trace stays with the rank that opened it as long as there are others to begin") {
  std::vector<TraceJobs> traces;
  for (std::size_t i = 0; i < 8; ++i) traces.push_back(trace_jobs(i, 1, {4, 3, 2}));
  const SimulatedRanks run =
      simulate_ranks(traces, 2, [](const StudyJob& job, std::size_t) { return job.work; });
  std::map<std::size_t, std::size_t> rank;
  for (const SimulatedJob& each : run.jobs) {
    const auto [known, fresh] = rank.emplace(each.job.trace, each.rank);
    if (!fresh) CHECK(known->second == each.rank);
  }
  CHECK(run.seconds == 40);
}

TEST_CASE("job queue: the largest come first, and the last ones are shared") {
  // One long trace among short ones: it is begun first, and helped with at the end.
  std::vector<TraceJobs> traces{trace_jobs(0, 1, {1}), trace_jobs(1, 2, {10, 20, 10, 20}),
                                trace_jobs(2, 1, {1})};
  const auto exact = [](const StudyJob& job, std::size_t) { return job.work; };
  const SimulatedRanks one = simulate_ranks(traces, 1, exact);
  CHECK(one.seconds == total(traces));
  CHECK(one.jobs[0].job.trace == 1);
  CHECK((one.jobs[1].job.task == 1 && one.jobs[2].job.task == 3));
  const SimulatedRanks two = simulate_ranks(traces, 2, exact);
  CHECK(two.seconds == 34);  // 2, 20 and 10 there; 1, 1, 1, 1, 20 and 10 here
  // No order is better than half of all, and a rule that never lets a rank wait while it could do something
  // is at most a longest chain worse (Graham 1966).
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const std::vector<TraceJobs> some = random_traces(random, 1 + random() % 20);
    double longest = 0;
    for (const TraceJobs& trace : some)
      for (const StudyJob& task : trace.tasks) longest = std::max(longest, trace.opening + task.work);
    for (const TraceJobs& trace : some) longest = std::max(longest, trace.opening);
    for (const std::size_t ranks : {1, 2, 5, 50}) {
      const SimulatedRanks run = simulate_ranks(some, ranks, exact);
      const double share = total(some) / static_cast<double>(ranks);
      CHECK(run.seconds >= share - 1e-9);
      CHECK(run.seconds <= share + longest + 1e-9);
    }
  }
}

TEST_CASE("job queue: a trace that cannot be read loses its tasks or its closing, and no other does") {
  const std::vector<TraceJobs> traces{trace_jobs(0, 9, {5, 4}), trace_jobs(1, 1, {2, 1}),
                                      trace_jobs(2, 0, {})};
  const auto unit = [](const StudyJob&, std::size_t) { return 1.0; };
  const auto count = [](const SimulatedRanks& run, std::size_t trace) {
    return std::count_if(run.jobs.begin(), run.jobs.end(),
                         [&](const SimulatedJob& each) { return each.job.trace == trace; });
  };
  const SimulatedRanks lost = simulate_ranks(
      traces, 2, unit, [](const StudyJob& job) { return !(job.trace == 0 && job.kind == Kind::open); });
  CHECK((count(lost, 0) == 1 && count(lost, 1) == 4 && count(lost, 2) == 2));
  const SimulatedRanks damaged = simulate_ranks(traces, 2, unit, [](const StudyJob& job) {
    return !(job.trace == 0 && job.kind == Kind::task && job.task == 0);
  });
  CHECK((count(damaged, 0) == 3 && count(damaged, 1) == 4 && count(damaged, 2) == 2));
  JobQueue queue(traces, 1);
  CHECK((queue.work() == 22 && queue.work_done() == 0));
  const StudyJob first = queue.next(0).value();
  queue.done(first, false);
  CHECK((first.trace == 0 && queue.work_done() == 18));
}

}  // namespace kvsim::analysis::test_job_queue
