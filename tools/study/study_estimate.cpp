#include "tools/study/study_estimate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <set>

#include "analysis/results/numbers.hpp"
#include "sim/base/byte_text.hpp"
#include "sim/base/error.hpp"
#include "tools/printing/progress_display.hpp"
#include "tools/study/study_run.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

/// A folder that goes with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "kvsim-estimate-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) input_error("cannot be made", pattern);
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code failed;
    fs::remove_all(path_, failed);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Measured {
  std::string trace;
  std::uint64_t tokens = 0, memory = 0;
  double seconds = 0, work = 0;
};

const StudyTrace* shortest(const StudyPlan& plan) {
  const StudyTrace* found = nullptr;
  for (const StudyTrace& trace : plan.traces)
    if (trace.problem.empty() && (found == nullptr || trace.tokens < found->tokens)) found = &trace;
  return found;
}

/// The whole of the study's work on one trace.
Measured measure(const StudyPlan& plan, const StudyTrace& trace, unsigned threads, bool quiet) {
  const TemporaryFolder temporary;
  StudyPlan sample = plan;
  sample.folder = temporary.path();
  sample.traces = {trace};
  if (trace.prompt) sample.traces[0].path = temporary.path() + "/traces/" + trace.name + ".h5";
  analysis::StudyFolder folder(sample.folder);
  folder.write("prompts.jsonl", plan.prompts.lines);
  Measured out{trace.name, trace.tokens, 0, 0, missing_work(sample)};
  Progress progress;
  const auto begin = std::chrono::steady_clock::now();
  StudyRun run(sample, folder, threads, 0);
  {
    const ProgressDisplay display(progress, "measuring " + trace.name, quiet);
    run.run_tasks(progress);
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (const std::string& problem = run.traces()[0].problem; !problem.empty()) input_error(problem);
  if (plan.policies.empty()) return out;
  const auto source = trace::open_trace(sample.traces[0].path);
  sim::Request request = plan.request();
  request.threads = threads;
  for (const analysis::StudiedTrace::Cut& cut : run.traces()[0].cuts) {
    const trace::Sequence sequence(*source, 0, trace::parse_cut(cut.cut));
    if (sequence.first_query() <= sequence.first_measured())
      out.memory = std::max(out.memory, sim::estimate_bytes(sequence, request));
  }
  return out;
}

std::string about(double seconds) {
  const auto minutes = static_cast<std::uint64_t>(seconds / 60);
  if (minutes >= 120) return analysis::rounded_text(seconds / 3600, 1) + " hours";
  if (minutes >= 2) return analysis::rounded_text(seconds / 60, 1) + " minutes";
  return analysis::rounded_text(seconds, seconds < 10 ? 1 : 0) + " seconds";
}

}  // namespace

void print_estimate(std::ostream& out, const StudyPlan& plan, unsigned threads, bool quiet) {
  std::size_t captures = 0, unreadable = 0;
  std::uint64_t longest = 0;
  std::set<std::string> cuts;
  std::size_t replays = 0;
  for (const StudyTrace& trace : plan.traces) {
    if (!trace.problem.empty()) {
      ++unreadable;
      note(trace.problem);
      continue;
    }
    captures += to_capture(trace) ? 1 : 0;
    longest = std::max(longest, trace.tokens);
    replays += plan.config.seeds.size() * trace.cuts.size();
    for (const trace::Cut& cut : trace.cuts) cuts.insert(cut.text());
  }
  const TaskCount tasks = count_tasks(plan);
  out << "traces   " << plan.traces.size() << " (to capture " << captures << ", unreadable " << unreadable
      << ")\n"
      << "tasks    " << tasks.all << " (finished " << tasks.finished << ", cuts " << cuts.size() << ", seeds "
      << plan.config.seeds.size() << ", analyses " << plan.analyses.size() << ")\n"
      << "cells    " << plan.cells() * replays << " (policies " << plan.policies.size() << ", budgets "
      << plan.budgets.size() << ")\n";
  const StudyTrace* const trace = shortest(plan);
  if (trace == nullptr || missing_work(plan) == 0) {
    out << "time     nothing is left to run\n";
    return;
  }
  const Measured measured = measure(plan, *trace, threads, quiet);
  const double length =
      static_cast<double>(longest) / static_cast<double>(std::max<std::uint64_t>(measured.tokens, 1));
  if (measured.memory > 0)
    out << "memory   about "
        << bytes_text(static_cast<std::uint64_t>(static_cast<double>(measured.memory) * length))
        << " for the longest trace, " << longest << " tokens\n";
  out << "time     about " << about(measured.seconds * missing_work(plan) / measured.work)
      << ", from all of the work on " << measured.trace << " (" << measured.tokens << " tokens), which took "
      << about(measured.seconds) << " now\n";
}

}  // namespace kvsim::tools
