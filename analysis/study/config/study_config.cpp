#include "analysis/study/config/study_config.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "analysis/study/config/study_fields.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::analysis {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxValues = 1'000'000;

// A completed document holds every field with its type: nothing is left to check here.
std::string text_at(const json::object& object, const char* key) {
  return std::string(object.at(key).get_string());
}

std::uint64_t whole_at(const json::object& object, const char* key) {
  return object.at(key).to_number<std::uint64_t>();
}

std::vector<std::string> texts_at(const json::object& object, const char* key) {
  std::vector<std::string> out;
  for (const json::value& item : object.at(key).get_array()) out.emplace_back(item.get_string());
  return out;
}

std::vector<StudyTraces> traces_at(const json::object& object, const char* key) {
  std::vector<StudyTraces> out;
  for (const json::value& item : object.at(key).get_array()) {
    const json::object& entry = item.get_object();
    out.push_back({text_at(entry, "files"), text_at(entry, "name"), text_at(entry, "workload"),
                   text_at(entry, "sha256")});
  }
  return out;
}

StudyWorkload workload_of(const json::object& entry) {
  return {text_at(entry, "kind"),      whole_at(entry, "context"), whole_at(entry, "count"),
          whole_at(entry, "seed"),     whole_at(entry, "facts"),   whole_at(entry, "hops"),
          whole_at(entry, "examples"), text_at(entry, "style"),    text_at(entry, "text")};
}

StudyCapture capture_of(const json::object& section) {
  StudyCapture out;
  out.model = text_at(section, "model");
  for (const json::value& item : section.at("workloads").get_array())
    out.workloads.push_back(workload_of(item.get_object()));
  out.prompts = traces_at(section, "prompts");
  out.max_new_tokens = whole_at(section, "max_new_tokens");
  out.ignore_eos = section.at("ignore_eos").get_bool();
  out.queries = text_at(section, "queries");
  out.attention = text_at(section, "attention");
  out.output_weights = section.at("output_weights").get_bool();
  out.elem = text_at(section, "elem");
  out.prefill_chunk = whole_at(section, "prefill_chunk");
  out.keep_traces = section.at("keep_traces").get_bool();
  return out;
}

StudyAnalysis analysis_of(const json::object& entry) {
  StudyAnalysis out{text_at(entry, "kind"), text_at(entry, "table")};
  for (const auto& member : entry)
    if (member.key() != "kind" && member.key() != "table")
      out.settings.emplace_back(member.key(), member.value().get_string());
  return out;
}

json::array list(const std::vector<std::string>& items) {
  return json::array(items.begin(), items.end());
}

json::array traces_list(const std::vector<StudyTraces>& entries) {
  json::array out;
  for (const StudyTraces& entry : entries)
    out.push_back(json::object{{"files", entry.files},
                               {"name", entry.name},
                               {"workload", entry.workload},
                               {"sha256", entry.sha256}});
  return out;
}

json::object capture_section(const StudyCapture& capture) {
  json::array workloads;
  for (const StudyWorkload& entry : capture.workloads)
    workloads.push_back(json::object{{"kind", entry.kind},
                                     {"context", entry.context},
                                     {"count", entry.count},
                                     {"seed", entry.seed},
                                     {"facts", entry.facts},
                                     {"hops", entry.hops},
                                     {"examples", entry.examples},
                                     {"style", entry.style},
                                     {"text", entry.text}});
  return {{"model", capture.model},
          {"workloads", std::move(workloads)},
          {"prompts", traces_list(capture.prompts)},
          {"max_new_tokens", capture.max_new_tokens},
          {"ignore_eos", capture.ignore_eos},
          {"queries", capture.queries},
          {"attention", capture.attention},
          {"output_weights", capture.output_weights},
          {"elem", capture.elem},
          {"prefill_chunk", capture.prefill_chunk},
          {"keep_traces", capture.keep_traces}};
}

json::array policies_list(const std::vector<StudyPolicy>& policies) {
  json::array out;
  for (const StudyPolicy& policy : policies)
    out.push_back(json::object{{"policy", policy.policy}, {"params", policy.params}});
  return out;
}

json::array analyses_list(const std::vector<StudyAnalysis>& analyses) {
  json::array out;
  for (const StudyAnalysis& analysis : analyses) {
    json::object entry{{"kind", analysis.kind}, {"table", analysis.table}};
    for (const auto& [name, value] : analysis.settings) entry[name] = value;
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

StudyConfig read_study(std::string_view text, const std::string& where) {
  const json::object document = complete_study(parse_strict_json(text, where, kMaxValues), where);
  StudyConfig out;
  out.name = text_at(document, "name");
  out.title = text_at(document, "title");
  out.traces = traces_at(document, "traces");
  if (const json::value& capture = document.at("capture"); capture.is_object())
    out.capture = capture_of(capture.get_object());
  out.loops = texts_at(document, "loops");
  const json::object& evaluate = document.at("evaluate").get_object();
  out.evaluate = {text_at(evaluate, "mode"), whole_at(evaluate, "max_new_tokens"),
                  text_at(evaluate, "force")};
  for (const json::value& item : document.at("policies").get_array())
    out.policies.push_back({text_at(item.get_object(), "policy"), text_at(item.get_object(), "params")});
  out.budgets = texts_at(document, "budgets");
  for (const json::value& seed : document.at("seeds").get_array())
    out.seeds.push_back(seed.to_number<std::uint64_t>());
  out.bounds = document.at("bounds").get_bool();
  out.cuts = texts_at(document, "cuts");
  out.scopes = texts_at(document, "scopes");
  out.metrics = texts_at(document, "metrics");
  for (const json::value& item : document.at("analyses").get_array())
    out.analyses.push_back(analysis_of(item.get_object()));
  const json::object& statistics = document.at("statistics").get_object();
  out.resamples = whole_at(statistics, "resamples");
  out.confidence = statistics.at("confidence").to_number<double>();
  out.statistics_seed = whole_at(statistics, "seed");
  out.least_full = statistics.at("least_full").to_number<double>();
  out.machine = text_at(document, "machine");
  out.model = text_at(document, "model");
  for (const json::value& prompt : document.at("price_prompts").get_array())
    out.price_prompts.push_back(prompt.to_number<std::uint64_t>());
  out.report = document.at("report").get_bool();
  return out;
}

bool StudyConfig::has_loop(std::string_view loop) const {
  return std::find(loops.begin(), loops.end(), loop) != loops.end();
}

json::object study_document(const StudyConfig& config) {
  return {{"name", config.name},
          {"title", config.title},
          {"traces", traces_list(config.traces)},
          {"capture", config.capture ? json::value(capture_section(*config.capture)) : json::value(nullptr)},
          {"loops", list(config.loops)},
          {"evaluate", json::object{{"mode", config.evaluate.mode},
                                    {"max_new_tokens", config.evaluate.max_new_tokens},
                                    {"force", config.evaluate.force}}},
          {"policies", policies_list(config.policies)},
          {"budgets", list(config.budgets)},
          {"seeds", json::array(config.seeds.begin(), config.seeds.end())},
          {"bounds", config.bounds},
          {"cuts", list(config.cuts)},
          {"scopes", list(config.scopes)},
          {"metrics", list(config.metrics)},
          {"analyses", analyses_list(config.analyses)},
          {"statistics", json::object{{"resamples", config.resamples},
                                      {"confidence", config.confidence},
                                      {"seed", config.statistics_seed},
                                      {"least_full", config.least_full}}},
          {"machine", config.machine},
          {"model", config.model},
          {"price_prompts", json::array(config.price_prompts.begin(), config.price_prompts.end())},
          {"report", config.report}};
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
