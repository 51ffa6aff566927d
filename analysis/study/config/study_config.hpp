#pragma once
/// What a study is asked to do, as its file says it and with every default filled in.
#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvsim::analysis {

struct StudyTraces {
  std::string files;  ///< a path, or a pattern while the study is not expanded
  std::string name, workload, sha256;
};

struct StudyWorkload {
  std::string kind;
  std::uint64_t context = 0, count = 0, seed = 0, facts = 0, hops = 0, examples = 0;
  std::string style, text;
};

struct StudyCapture {
  std::string model;
  std::vector<StudyWorkload> workloads;
  std::vector<StudyTraces> prompts;
  std::uint64_t max_new_tokens = 0;
  bool ignore_eos = false;
  std::string queries, attention;
  bool output_weights = false;
  std::string elem;
  std::uint64_t prefill_chunk = 0;
  bool keep_traces = true;  ///< else a trace is removed once its tasks have finished
};

struct StudyPolicy {
  std::string policy;  ///< composition, or a group or pattern while the study is not expanded
  std::string params;  ///< with every effective parameter; may be empty while the study is not expanded
};

/// How the closed loop is run, as `kvsim evaluate` is told.
struct StudyEvaluate {
  std::string mode;  ///< teacher, greedy or both
  std::uint64_t max_new_tokens = 0;
  std::string force;  ///< tokens of teacher mode: answer or full
};

struct StudyAnalysis {
  std::string kind, table;
  std::vector<std::pair<std::string, std::string>> settings{};  ///< every one of the kind once expanded
};

struct StudyStatistics {
  std::uint64_t resamples = 0;
  double confidence = 0;
  std::uint64_t seed = 0;
  double least_full = 0;  ///< share of a workload's items that its full cache must answer to be ranked
};

struct StudyConfig {
  std::string name, title;
  std::vector<StudyTraces> traces;
  std::optional<StudyCapture> capture;
  std::vector<std::string> loops;  ///< open, closed
  StudyEvaluate evaluate;
  std::vector<StudyPolicy> policies;
  std::vector<std::string> budgets;
  std::vector<std::uint64_t> seeds;
  std::vector<std::string> cuts;  ///< empty: prompt, and question where a trace knows its context
  bool bounds = true;
  std::vector<std::string> scopes, metrics;
  std::vector<StudyAnalysis> analyses;
  StudyStatistics statistics;
  /// On which machine which model is priced; empty: only what rules read is told.
  std::string machine, model;
  std::vector<std::uint64_t> price_prompts;  ///< tokens; empty: usual_prompts()
  bool report = true;

  /// Whether a loop is asked for, by its name.
  bool has_loop(std::string_view loop) const;
};

/// `text` is the file's content, `where` its name in messages. Throws Error(input) for what is no JSON,
/// Error(usage) as complete_study() does.
StudyConfig read_study(std::string_view text, const std::string& where);

/// The same study as a document with every field; read_study() of its text gives `config` again.
boost::json::object study_document(const StudyConfig& config);

/// Every path of the study (not those inside policies) as `changed` maps it. Empty ones stay empty.
void change_paths(StudyConfig& config, const std::function<std::string(const std::string&)>& changed);

}  // namespace kvsim::analysis
