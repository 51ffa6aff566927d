#include "analysis/study/same_study.hpp"

#include <boost/json.hpp>
#include <filesystem>

#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_tasks.hpp"
#include "sim/base/error.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::uint64_t kMaxStudyBytes = 1ULL << 30;

}  // namespace

std::string plan_digest(const StudyPlan& plan) {
  Sha256 digest;
  const auto add = [&](const std::string& text) { digest.update(text.data(), text.size() + 1); };
  add(kVersion);
  add(kCommit);
  add(boost::json::serialize(effective_study(plan, plan.folder)));
  add(plan.prompts.lines);
  for (const StudyTrace& trace : plan.traces) {
    add(trace.name);
    add(trace.problem.empty() ? "sound" : "problem");
    for (const StudyTask& task : tasks_of(plan, trace)) add(task.name);
  }
  return digest.hex();
}

std::string study_digest(const std::string& folder) {
  const std::string path = folder + '/' + kStudyFile;
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return {};
  Sha256 digest;
  const std::string text = read_regular_file(path, kMaxStudyBytes);
  digest.update(text.data(), text.size());
  return digest.hex();
}

}  // namespace kvsim::analysis
