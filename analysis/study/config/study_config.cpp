#include "analysis/study/config/study_config.hpp"

#include <algorithm>
#include <boost/describe.hpp>
#include <boost/json.hpp>

#include "analysis/study/config/study_fields.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {

namespace json = boost::json;

// As documents hold them, in this order.
BOOST_DESCRIBE_STRUCT(StudyTraces, (), (files, name, workload, sha256))
BOOST_DESCRIBE_STRUCT(StudyWorkload, (), (kind, context, count, seed, facts, hops, examples, style, text))
BOOST_DESCRIBE_STRUCT(StudyCapture, (),
                      (model, workloads, prompts, max_new_tokens, ignore_eos, queries, attention,
                       output_weights, elem, prefill_chunk, keep_traces))
BOOST_DESCRIBE_STRUCT(StudyPolicy, (), (policy, params))
BOOST_DESCRIBE_STRUCT(StudyEvaluate, (), (mode, max_new_tokens, force))
BOOST_DESCRIBE_STRUCT(StudyStatistics, (), (resamples, confidence, seed, least_full))
BOOST_DESCRIBE_STRUCT(StudyConfig, (),
                      (name, title, traces, capture, loops, evaluate, policies, budgets, seeds, bounds, cuts,
                       scopes, metrics, analyses, statistics, machine, model, price_prompts, report))

// What else an analysis holds are settings of its kind.
StudyAnalysis tag_invoke(const json::value_to_tag<StudyAnalysis>&, const json::value& value) {
  StudyAnalysis out;
  for (const auto& [key, member] : value.get_object()) {
    std::string text(member.get_string());
    if (key == "kind")
      out.kind = std::move(text);
    else if (key == "table")
      out.table = std::move(text);
    else
      out.settings.emplace_back(key, std::move(text));
  }
  return out;
}

void tag_invoke(const json::value_from_tag&, json::value& value, const StudyAnalysis& analysis) {
  json::object& entry = value.emplace_object();
  entry = {{"kind", analysis.kind}, {"table", analysis.table}};
  for (const auto& [name, setting] : analysis.settings) entry[name] = setting;
}

StudyConfig read_study(std::string_view text, const std::string& where) {
  constexpr std::size_t kMaxValues = 1'000'000;
  json::object document = complete_study(parse_strict_json(text, where, kMaxValues), where);
  // What kvsim itself wrote there.
  for (const char* key : {"inputs", "result"}) document.erase(key);
  return json::value_to<StudyConfig>(json::value(std::move(document)));
}

json::object study_document(const StudyConfig& config) {
  return json::value_from(config).get_object();
}

bool StudyConfig::has_loop(std::string_view loop) const {
  return std::ranges::find(loops, loop) != loops.end();
}

void change_paths(StudyConfig& config, const std::function<std::string(const std::string&)>& changed) {
  const auto change = [&](std::string& path) {
    if (!path.empty()) path = changed(path);
  };
  for (StudyTraces& entry : config.traces) change(entry.files);
  // What holds no slash is a name of the catalogue.
  for (std::string* file : {&config.machine, &config.model})
    if (file->find('/') != std::string::npos) change(*file);
  if (!config.capture) return;
  change(config.capture->model);
  for (StudyTraces& entry : config.capture->prompts) change(entry.files);
  for (StudyWorkload& entry : config.capture->workloads) change(entry.text);
}

}  // namespace kvsim::analysis
