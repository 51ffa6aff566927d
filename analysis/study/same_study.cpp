#include "analysis/study/same_study.hpp"

#include <boost/json.hpp>
#include <filesystem>

#include "analysis/study/study_folder.hpp"
#include "analysis/study/study_tasks.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/version.hpp"

namespace kvsim::analysis {

std::string plan_digest(const StudyPlan& plan) {
  Sha256 digest;
  const auto add = [&](const std::string& text) { digest.update(text.data(), text.size() + 1); };
  add(kVersion);
  add(kCommit);
  add(boost::json::serialize(effective_study(plan, plan.folder)));
  add(plan.prompts.lines);
  add(boost::json::serialize(inputs_document(plan.inputs)));
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
  return file_digest(path);
}

}  // namespace kvsim::analysis
