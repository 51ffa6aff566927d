/// Plays a large study through for up to 1,000 ranks, with the queue that gives jobs in real ones and a clock
/// in place of the work: how busy ranks are, beside ranks that take tasks by a hash of their names; and how
/// long the queue itself takes. Every number but the last column is the same on any machine. bench_ranks.py
/// measures two real ranks.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>

#include "tests/support/simulated_ranks.hpp"

using namespace kvsim;
using analysis::StudyJob;
using analysis::TraceJobs;

namespace {

constexpr double kSpread = 0.5;   // of the logarithm of a job's time about its estimate
constexpr double kSlowest = 1.3;  // rank, beside the fastest

/// Prompts of 2K to 32K tokens, each captured, then replayed and answered at two cuts with three seeds, and
/// analysed once. Works are seconds on one rank, as the study estimates them.
std::vector<TraceJobs> study(std::size_t prompts) {
  std::mt19937_64 random(1);
  std::vector<TraceJobs> out(prompts);
  for (std::size_t i = 0; i < prompts; ++i) {
    const double tokens = std::exp2(std::uniform_real_distribution<double>(11, 15)(random));
    const double cell = tokens * (1 + tokens / 2000) / 2e6;  // seconds per cell of a replay
    constexpr double kCells = 64, kPass = 40;  // a pass of the model costs as much as so many cells
    out[i].trace = i;
    out[i].opening = kPass * cell;
    out[i].closes = true;
    for (std::size_t task = 0; task < 13; ++task) {
      const double work = (task < 6 ? kCells : task < 12 ? kPass + kCells : kPass / 2) * cell;
      out[i].tasks.push_back({StudyJob::Kind::task, i, task, work});
    }
  }
  return out;
}

/// How long a job takes on a rank: estimates are wrong, and machines differ. Closing removes a file.
class Durations {
 public:
  explicit Durations(std::size_t ranks) : slowness_(ranks) {
    std::mt19937_64 random(2);
    for (double& slowness : slowness_) slowness = std::uniform_real_distribution<double>(1, kSlowest)(random);
  }
  double operator()(const StudyJob& job, std::size_t rank) const {
    if (job.kind == StudyJob::Kind::close) return 0.1;
    std::mt19937_64 random(64 * job.trace + (job.kind == StudyJob::Kind::open ? 63 : job.task));
    return job.work * slowness_[rank] * std::exp(std::normal_distribution<double>(0, kSpread)(random));
  }

 private:
  std::vector<double> slowness_;
};

struct Run {
  double seconds = 0;  ///< until the last rank has ended
  double busy = 0;     ///< share of the ranks' time in which they work
};

Run shared_out(const std::vector<TraceJobs>& traces, std::size_t ranks, const Durations& seconds) {
  const test::SimulatedRanks run = test::simulate_ranks(traces, ranks, seconds);
  double busy = 0;
  for (const test::SimulatedJob& job : run.jobs) busy += job.end - job.begin;
  return {run.seconds, busy / (run.seconds * static_cast<double>(ranks))};
}

/// Every rank does the traces that a hash gives it.
Run by_hash(const std::vector<TraceJobs>& traces, std::size_t ranks, const Durations& seconds) {
  std::vector<double> busy(ranks);
  for (const TraceJobs& trace : traces) {
    const std::size_t rank = std::mt19937_64(trace.trace)() % ranks;
    busy[rank] += seconds({StudyJob::Kind::open, trace.trace, 0, trace.opening}, rank);
    for (const StudyJob& task : trace.tasks) busy[rank] += seconds(task, rank);
  }
  const double last = *std::max_element(busy.begin(), busy.end());
  return {last, std::accumulate(busy.begin(), busy.end(), 0.0) / (last * static_cast<double>(ranks))};
}

}  // namespace

int main() {
  std::printf("prompts   jobs  ranks     hours     busy  by hash   jobs/s   queue, us/job\n");
  for (const std::size_t prompts : {100, 1000, 10000}) {
    const std::vector<TraceJobs> traces = study(prompts);
    const auto jobs = static_cast<double>(prompts * 15);
    for (const std::size_t ranks : {1, 10, 100, 1000}) {
      const Durations seconds(ranks);
      const auto begin = std::chrono::steady_clock::now();
      const Run run = shared_out(traces, ranks, seconds);
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      std::printf("%7zu %6.0f %6zu %9.2f %7.1f%% %7.1f%% %8.2f %15.1f\n", prompts, jobs, ranks,
                  run.seconds / 3600, 100 * run.busy, 100 * by_hash(traces, ranks, seconds).busy,
                  jobs / run.seconds, took.count() / jobs);
      std::fflush(stdout);
    }
  }
}
