#include "analysis/study/earlier_study.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <system_error>

#include "analysis/results/document.hpp"
#include "analysis/study/config/study_changes.hpp"
#include "analysis/study/study_tasks.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::uint64_t kMaxStudyBytes = 64ULL << 20;
constexpr std::size_t kMaxStudyValues = 2'000'000;

struct KnownTrace {
  std::string name;
  bool captured = false;
};

boost::json::value study_in(const std::string& folder) {
  const std::string path = folder + '/' + kStudyFile;
  return parse_strict_json(read_regular_file(path, kMaxStudyBytes), path, kMaxStudyValues);
}

/// The version of kvsim's schema of results that it was written with.
std::uint64_t schema_of(const JsonObject& study) {
  return study.has("result") ? study.object("result").integer_or("schema_version", 0, ~0ULL, 0) : 0;
}

/// Throws unless finished tasks would come out the same.
void check_resumable(const StudyPlan& plan, const boost::json::object& effective, const NoteListener& note) {
  const std::string path = plan.folder + '/' + kStudyFile;
  const boost::json::value there = study_in(plan.folder);
  if (const std::uint64_t schema = schema_of({there, path}); schema != kSchemaVersion)
    usage_error("has results of schema " + std::to_string(schema) + ", this kvsim writes schema " +
                    std::to_string(kSchemaVersion),
                path, "Choose another folder with -o, or start anew with --overwrite.");
  boost::json::object was = study_document(read_study(boost::json::serialize(there), path));
  // Where nothing is finished yet, everything may be another content.
  const bool begun =
      count_tasks(plan).finished > 0 || std::ranges::any_of(plan.traces, [](const StudyTrace& trace) {
        return trace.prompt && std::filesystem::exists(trace.path);
      });
  const boost::json::value* const inputs = there.as_object().if_contains("inputs");
  if (begun && inputs != nullptr && inputs->is_object()) was["inputs"] = *inputs;
  const StudyChanges changes = study_changes(was, effective);
  if (changes.conflict && changes.conflict->input)
    input_error(changes.conflict->path + " was " + changes.conflict->was + " and is now " +
                    changes.conflict->is + ": finished tasks are about another content",
                path, "Put the file back, choose another folder with -o, or start anew with --overwrite.");
  if (changes.conflict)
    usage_error(changes.conflict->path + " was " + changes.conflict->was + " and is now " +
                    changes.conflict->is + ": finished tasks would not fit those to come",
                path, "Take the change back, choose another folder with -o, or start anew with --overwrite.");
  for (const std::string& change : changes.taken_over) note("the study was edited; " + change);
}

/// Traces of the study in a folder. Their names are those of files that may be removed.
std::vector<KnownTrace> traces_in(const std::string& folder) {
  std::vector<KnownTrace> out;
  const boost::json::value there = study_in(folder);
  const JsonObject study(there, folder + '/' + kStudyFile);
  if (!study.has("result")) return out;
  const JsonObject result = study.object("result");
  for (const boost::json::value& trace : result.array("traces")) {
    const JsonObject entry(trace, result.path("traces"));
    out.push_back({entry.text("name"), entry.flag_or("captured", false)});
    if (out.back().name.find('/') != std::string::npos)
      input_error("'" + out.back().name + "' is no name of a trace of a study", entry.path("name"),
                  "Choose another folder with -o.");
  }
  return out;
}

/// Throws if a captured trace of one of these names, which is about to be removed, is an input of the plan.
void keep_inputs(const StudyPlan& plan, const std::vector<std::string>& captured) {
  for (const StudyTrace& trace : plan.traces) {
    if (trace.prompt) continue;
    for (const std::string& name : captured) {
      std::error_code failed;
      const std::string path = plan.folder + "/traces/" + name + ".h5";
      if (std::filesystem::equivalent(path, trace.path, failed))
        usage_error("is a trace that this study reads, and would be removed", path,
                    "Choose another folder with -o.");
    }
  }
}

void start_anew(const StudyPlan& plan) {
  std::vector<std::string> captured;
  for (const KnownTrace& trace : traces_in(plan.folder))
    if (trace.captured) captured.push_back(trace.name);
  keep_inputs(plan, captured);
  remove_study(plan.folder, captured);
}

void forget_unknown(const StudyPlan& plan, StudyFolder& folder) {
  const std::vector<KnownTrace> known = traces_in(plan.folder);
  for (const StudyTrace& trace : plan.traces) {
    const bool captured = trace.prompt.has_value();
    if (std::ranges::any_of(known, [&](const KnownTrace& other) {
          return other.name == trace.name && other.captured == captured;
        }))
      continue;
    if (captured) keep_inputs(plan, {trace.name});
    folder.forget(trace.name, captured);
  }
}

/// A changed task is refused, not run again in silence: a disk that loses data, or an edit that a person
/// made, is for people to know of.
void check_finished_tasks(const StudyPlan& plan, const StudyFolder& folder) {
  for (const StudyTrace& trace : plan.traces)
    for (const StudyTask& task : tasks_of(plan, trace))
      if (task_finished(plan.folder, task.name)) folder.check(task.name);
}

}  // namespace

bool check_earlier_study(const StudyPlan& plan, Existing existing, const boost::json::object& effective,
                         const NoteListener& note) {
  if (nothing_there(plan.folder)) return false;
  if (existing != Existing::refuse && nothing_left(plan.folder)) return false;
  if (nothing_there(plan.folder + '/' + kStudyFile))
    usage_error("is not empty, and no study's folder", plan.folder, "Choose another one with -o.");
  if (existing == Existing::refuse)
    usage_error("is not empty", plan.folder,
                "--resume goes on with the study in it, --overwrite starts anew; -o chooses another folder.");
  if (existing == Existing::go_on) check_resumable(plan, effective, note);
  return true;
}

void clear_earlier_study(const StudyPlan& plan, Existing existing, StudyFolder& folder) {
  if (existing == Existing::start_anew) start_anew(plan);
  if (existing != Existing::go_on) return;
  forget_unknown(plan, folder);
  check_finished_tasks(plan, folder);
}

}  // namespace kvsim::analysis
