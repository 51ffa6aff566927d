#include "analysis/study/study_estimate.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "analysis/study/task_runner.hpp"
#include "sim/base/error.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

/// A folder that is removed with everything in it.
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

/// Bytes of the largest replay of a trace, at the cuts that its queries allow.
std::uint64_t replay_memory(const StudyPlan& plan, const std::string& path, const StudiedTrace& studied,
                            unsigned threads) {
  const auto source = trace::open_trace(path);
  sim::Request request = plan.request();
  request.threads = threads;
  std::uint64_t out = 0;
  for (const StudiedTrace::Cut& cut : studied.cuts) {
    const trace::Sequence sequence(*source, 0, trace::parse_cut(cut.cut));
    if (!sim::missing_queries(sequence)) out = std::max(out, sim::estimate_bytes(sequence, request));
  }
  return out;
}

}  // namespace

StudySize size_of(const StudyPlan& plan) {
  StudySize out;
  std::set<std::string> cuts;
  for (const StudyTrace& trace : plan.traces) {
    if (!trace.problem.empty()) {
      out.unreadable.push_back(trace.problem);
      continue;
    }
    out.to_capture += to_capture(plan, trace) ? 1 : 0;
    out.longest = std::max(out.longest, trace.tokens);
    for (const StudyTask& task : tasks_of(plan, trace))
      if (task.kind != StudyTask::Kind::analysis) out.cells += plan.cells();
    for (const trace::Cut& cut : trace.cuts) cuts.insert(cut.text());
  }
  out.cuts = cuts.size();
  out.tasks = count_tasks(plan);
  return out;
}

const StudyTrace* trace_to_try(const StudyPlan& plan) {
  if (missing_work(plan) == 0) return nullptr;
  const StudyTrace* found = nullptr;
  for (const StudyTrace& trace : plan.traces)
    if (trace.problem.empty() && (trace.prompt || !plan.config.has_loop("closed")) &&
        (found == nullptr || trace.tokens < found->tokens))
      found = &trace;
  return found;
}

/// Bytes kept at each end of a prompt that is tried: some hundred tokens, with which a study of every policy
/// takes two or three seconds.
constexpr std::uint64_t kSide = 150;

StudyEstimate estimate_study(const StudyPlan& plan, const StudyTrace& trace, unsigned threads,
                             Progress& progress, const NoteListener& note) {
  const TemporaryFolder temporary;
  StudyPlan sample = plan;
  sample.folder = temporary.path();
  sample.traces = {trace};
  StudyTrace& tried = sample.traces[0];
  StudyFolder folder(sample.folder);
  folder.write("prompts.jsonl", plan.prompts.lines);
  if (trace.prompt) {
    const StudyCapture& capture = *sample.config.capture;
    sample.config.capture->keep_traces = true;  // read once more below
    sample.prompts =
        shortened(capture, plan.prompts.prompts[*trace.prompt], folder.file("prompts.jsonl"), kSide);
    folder.write("prompts.jsonl", sample.prompts.lines);
    tried.prompt = 0;
    tried.tokens = sample.prompts.prompts[0].tokens + capture.max_new_tokens;
    tried.path = temporary.path() + "/traces/" + trace.name + ".h5";
  }
  const double work = missing_work(sample);
  const auto begin = std::chrono::steady_clock::now();
  TaskRunner runner(sample, folder, threads, 0, note);
  const std::vector<StudiedTrace> traces = runner.run(progress, 1);
  StudyEstimate out;
  out.tried_tokens = tried.tokens;
  out.tried_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const StudiedTrace& studied = traces[0];
  if (!studied.problem.empty()) input_error(studied.problem);
  out.seconds = out.tried_seconds * missing_work(plan) / work;
  out.memory = runner.loop_bytes();
  if (!plan.policies.empty() && plan.config.has_loop("open"))
    out.memory = std::max(out.memory, replay_memory(plan, tried.path, studied, threads));
  const double length = static_cast<double>(size_of(plan).longest) /
                        static_cast<double>(std::max<std::uint64_t>(tried.tokens, 1));
  out.memory = static_cast<std::uint64_t>(static_cast<double>(out.memory) * length);
  return out;
}

}  // namespace kvsim::analysis
