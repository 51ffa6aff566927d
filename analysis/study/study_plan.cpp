#include "analysis/study/study_plan.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "analysis/report/winners.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/sequence.hpp"
#include "traces/model/hub_cache.hpp"

namespace kvsim::analysis {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 16ULL << 20;

/// What `work` complains about is at `place` of the study file.
template <class Work>
decltype(auto) at(const std::string& place, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    usage_error(error.what(), place);
  }
}

std::string entry_place(const std::string& file, const char* list, std::size_t index) {
  return file + ' ' + list + '[' + std::to_string(index) + ']';
}

bool exists(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

/// Files a pattern means, sorted. A file of just that name is meant itself.
std::vector<std::string> matching(const std::string& pattern, const std::string& place) {
  if (exists(pattern)) return {pattern};
  if (pattern.find_first_of("*?[") == std::string::npos)
    input_error("there is no file " + pattern, place, "Paths are seen from the study file's folder.");
  glob_t found{};
  const int failed = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> out(found.gl_pathv, found.gl_pathv + (failed == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (out.empty())
    usage_error("no file matches " + pattern, place, "Patterns are seen from the study file's folder.");
  return out;
}

std::string stem(const std::string& path) {
  return fs::path(path).stem().string();
}

/// Names become names of folders and files.
void check_name(const std::string& name, const std::string& path, const std::string& place) {
  if (!name.empty() && name.front() != '.' && name.find('/') == std::string::npos) return;
  usage_error("'" + name + "' cannot be the name of " + path, place, "Give it a \"name\".");
}

/// Every file once, under its own name.
std::vector<StudyTraces> expanded(const std::vector<StudyTraces>& entries, const std::string& file,
                                  const char* list, const NoteListener& note) {
  std::vector<StudyTraces> out;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const StudyTraces& entry = entries[i];
    const std::string place = entry_place(file, list, i);
    const std::vector<std::string> files = matching(entry.files, place + ".files");
    if (files.size() > 1 && (!entry.name.empty() || !entry.sha256.empty()))
      usage_error("one name or content cannot be that of " + std::to_string(files.size()) + " files", place,
                  "Give each an entry of its own.");
    for (const std::string& path : files) {
      std::error_code failed;
      if (!seen.insert(fs::weakly_canonical(path, failed).string()).second) {
        note(path + " is asked for more than once; it is studied once");
        continue;
      }
      out.push_back({path, entry.name.empty() ? stem(path) : entry.name, entry.workload, entry.sha256});
      check_name(out.back().name, path, place);
    }
  }
  return out;
}

/// Fills in the content; one that is asked for must be there.
void check_content(StudyTraces& entry, const std::string& found, const std::string& place) {
  if (!entry.sha256.empty() && entry.sha256 != found)
    usage_error(entry.files + " has content " + found + ", not " + entry.sha256, place + ".sha256",
                "It is another file than the study means.");
  entry.sha256 = found;
}

/// Each once, in order.
template <class T>
void keep_first(std::vector<T>& items) {
  std::vector<T> out;
  for (T& item : items)
    if (std::ranges::find(out, item) == out.end()) out.push_back(std::move(item));
  items = std::move(out);
}

/// Where to cut when the study does not say: without context there is no
/// question to begin anywhere.
std::vector<trace::Cut> own_cuts(bool knows_context) {
  std::vector<trace::Cut> out{{}};
  if (knows_context) out.push_back({trace::Cut::At::question});
  return out;
}

bool knows_question(const trace::Source& source) {
  try {
    trace::Sequence(source, 0, {trace::Cut::At::question});
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return false;
  }
}

std::vector<trace::Cut> asked_cuts_of(StudyConfig& config, const std::string& file) {
  keep_first(config.cuts);
  std::vector<trace::Cut> out;
  for (std::size_t i = 0; i < config.cuts.size(); ++i)
    out.push_back(at(entry_place(file, "cuts", i), [&] { return trace::parse_cut(config.cuts[i]); }));
  return out;
}

void plan_traces(StudyPlan& plan, const std::string& file, const NoteListener& note) {
  plan.config.traces = expanded(plan.config.traces, file, "traces", note);
  for (std::size_t i = 0; i < plan.config.traces.size(); ++i) {
    StudyTraces& entry = plan.config.traces[i];
    StudyTrace& trace = plan.traces.emplace_back();
    trace.name = entry.name;
    trace.path = entry.files;
    trace.workload = entry.workload;
    trace.read = plan.reads_traces();
    try {
      const auto source = trace::open_trace(entry.files);
      trace.tokens = source->header().n_tokens();
      trace.cuts = plan.cuts.empty() ? own_cuts(knows_question(*source)) : plan.cuts;
      check_content(entry, source->content_sha256(), entry_place(file, "traces", i));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      trace.problem = error.what();
    }
  }
}

void plan_captures(StudyPlan& plan, const std::string& file, const NoteListener& note) {
  if (!plan.config.capture) return;
  StudyCapture& capture = *plan.config.capture;
  capture.prompts = expanded(capture.prompts, file, "capture.prompts", note);
  for (std::size_t i = 0; i < capture.prompts.size(); ++i)
    check_content(capture.prompts[i], file_digest(capture.prompts[i].files),
                  entry_place(file, "capture.prompts", i));
  plan.prompts = make_prompts(capture, file);
  if (plan.prompts.prompts.empty())
    usage_error("has neither workloads nor prompts", file + " capture", "Say what the model is to read.");
  for (std::size_t i = 0; i < plan.prompts.prompts.size(); ++i) {
    const StudyPrompt& prompt = plan.prompts.prompts[i];
    StudyTrace& trace = plan.traces.emplace_back();
    trace.name = prompt.name;
    trace.path = plan.folder + "/traces/" + prompt.name + ".h5";
    trace.workload = prompt.workload;
    trace.tokens = prompt.tokens + capture.max_new_tokens;
    trace.read = plan.reads_traces();
    trace.cuts = plan.cuts.empty() ? own_cuts(prompt.knows_context) : plan.cuts;
    trace.prompt = i;
  }
}

void check_names(const StudyPlan& plan, const std::string& file) {
  std::map<std::string, std::string> taken;
  for (const StudyTrace& trace : plan.traces) {
    const auto [other, fresh] = taken.emplace(trace.name, trace.path);
    if (!fresh)
      usage_error("two traces would be called " + trace.name + ": " + other->second + " and " + trace.path,
                  file, "Give one a \"name\", or its prompts another seed.");
  }
}

void plan_policies(StudyPlan& plan, const std::string& file, const NoteListener& note) {
  std::vector<StudyPolicy> effective;
  std::set<std::string> known;
  for (std::size_t i = 0; i < plan.config.policies.size(); ++i) {
    const StudyPolicy& entry = plan.config.policies[i];
    const std::string place = entry_place(file, "policies", i);
    const std::vector<AskedPolicy> asked =
        at(place, [&] { return asked_policies({entry.policy}, *plan.registry, note); });
    for (const AskedPolicy& policy : asked) {
      const std::string& params = policy.composition.params;
      if (!entry.params.empty() && (asked.size() != 1 || entry.params != params))
        usage_error(entry.policy + " is " + params + " in this kvsim, not " + entry.params, place + ".params",
                    "Say the policy with every parameter.");
      if (!known.insert(params).second) {
        note(params + " is asked for more than once; it is replayed once");
        continue;
      }
      plan.policies.push_back(policy);
      effective.push_back({policy.text, params});
    }
  }
  plan.config.policies = std::move(effective);
}

void plan_cells(StudyPlan& plan, const std::string& file, const NoteListener& note) {
  StudyConfig& config = plan.config;
  plan_policies(plan, file, note);
  plan.budgets = at(file + " budgets", [&] { return asked_budgets(config.budgets, note); });
  tell_many_cells(plan.cells(), note);
  config.budgets.clear();
  for (const sim::Budget& budget : plan.budgets) config.budgets.push_back(budget.text);
  keep_first(config.seeds);
  keep_first(config.scopes);
  for (std::size_t i = 0; i < config.scopes.size(); ++i)
    plan.scopes.push_back(at(entry_place(file, "scopes", i), [&] { return parse_scope(config.scopes[i]); }));
  if (plan.policies.empty()) return;
  if (plan.budgets.empty()) usage_error("is empty", file + " budgets", "Policies need one, such as 10%.");
  if (config.seeds.empty()) usage_error("is empty", file + " seeds", "[0] will do.");
  if (plan.scopes.empty()) usage_error("is empty", file + " scopes", "[\"all\"] is the least.");
}

void check_table(const std::string& table, const std::string& place, const StudyPlan& plan) {
  const bool plain = !table.empty() && std::ranges::all_of(table, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (!plain) usage_error("'" + table + "' cannot name a table", place, "Use a-z, 0-9, - and _.");
  std::vector<std::string> taken{"means",   "differences", "ranks",     "notes",      "skipped",
                                 "results", kAnswersTable, kPriceTable, kWinnersTable};
  for (const PlannedAnalysis& other : plan.analyses) taken.push_back(other.table);
  if (std::ranges::find(taken, table) != taken.end())
    usage_error("there is a table " + table + " already", place,
                "Give this analysis a \"table\" of another name.");
}

/// The closed loop needs a model and prompts, which only `capture` names.
void plan_loops(StudyPlan& plan, const std::string& file) {
  StudyConfig& config = plan.config;
  keep_first(config.loops);
  if (config.loops.empty()) usage_error("is empty", file + " loops", "[\"open\"] will do.");
  if (!config.has_loop("closed")) return;
  if (!config.capture)
    usage_error("the closed loop needs a model and prompts", file + " loops",
                "Say with \"capture\" which model answers what; recorded traces have no prompt to answer.");
  if (config.policies.empty())
    usage_error("the closed loop needs policies, and there are none", file + " loops",
                "Give \"policies\", or leave \"closed\" out.");
}

/// The machine and the model to price for.
void plan_price(StudyPlan& plan, const std::string& file) {
  const StudyConfig& config = plan.config;
  if (config.machine.empty()) {
    if (!config.model.empty() || !config.price_prompts.empty())
      usage_error("is of `machine`, which is not given",
                  file + (config.model.empty() ? " price_prompts" : " model"),
                  "Give \"machine\" too, such as \"a100-80-sxm\".");
    return;
  }
  if (config.model.empty() && !config.capture)
    usage_error("must be given beside `machine`", file + " model",
                "A study of recorded traces does not say which model it prices.");
  PriceQuestion& price = plan.price.emplace();
  price.machine = at(file + " machine", [&] { return cost::find_machine(config.machine); });
  price.model = at(file + (config.model.empty() ? " capture.model" : " model"), [&] {
    return cost::find_model(config.model.empty() ? config.capture->model : config.model);
  });
  price.prompts = config.price_prompts;
}

void plan_analyses(StudyPlan& plan, const std::string& file) {
  for (std::size_t i = 0; i < plan.config.analyses.size(); ++i) {
    StudyAnalysis& entry = plan.config.analyses[i];
    const std::string place = entry_place(file, "analyses", i);
    const Kind& kind = at(place + ".kind", [&]() -> const Kind& { return kind_named(entry.kind); });
    PlannedAnalysis planned{&kind, entry.table.empty() ? entry.kind : entry.table, Settings(kind.settings)};
    check_table(planned.table, place + ".table", plan);
    for (const auto& [name, text] : entry.settings) planned.settings.set(name, text, place + '.' + name);
    entry.table = planned.table;
    entry.settings.clear();
    for (const ParamValue& setting : planned.settings.entries)
      entry.settings.emplace_back(setting.name, setting.text);
    plan.analyses.push_back(std::move(planned));
  }
}

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

}  // namespace

sim::Request StudyPlan::request() const {
  sim::Request request;
  request.cells = cells_of(policies, budgets);
  request.bounds = config.bounds;
  request.each_step = std::ranges::find(scopes, Scope::step) != scopes.end();
  return request;
}

bool StudyPlan::reads_traces() const {
  return (config.has_loop("open") && !policies.empty()) || !analyses.empty();
}

StudyPlan plan_study(const std::string& file, const std::string& folder, const policy::Registry& registry,
                     const NoteListener& note, const std::string& model) {
  StudyPlan plan;
  plan.file = file;
  plan.registry = &registry;
  plan.config = read_study(read_file(file, kMaxConfigBytes), file);
  if (plan.config.name.empty()) plan.config.name = stem(file);
  check_name(plan.config.name, "the study", file + " name");
  if (plan.config.title.empty()) plan.config.title = plan.config.name;
  plan.folder = folder.empty() ? plan.config.name : folder;
  const fs::path home = fs::path(file).parent_path();
  const std::string named = plan.config.capture ? plan.config.capture->model : "";
  change_paths(plan.config,
               [&](const std::string& path) { return (home / path).lexically_normal().string(); });
  if (!model.empty()) {
    if (!plan.config.capture)
      usage_error("has no use: the study captures nothing", "--model " + model,
                  "Leave it out, or give " + file + " \"capture\".");
    plan.config.capture->model = model::local_checkpoint(model);
  } else if (std::error_code failed; plan.config.capture && !fs::exists(plan.config.capture->model, failed)) {
    const std::string found = model::local_checkpoint(named);  // of the hub, or again what is not there
    if (found != named) plan.config.capture->model = found;
  }
  plan_cells(plan, file, note);
  keep_first(plan.config.metrics);
  plan_loops(plan, file);
  plan_analyses(plan, file);
  plan_price(plan, file);
  plan.cuts = asked_cuts_of(plan.config, file);
  plan_traces(plan, file, note);
  plan_captures(plan, file, note);
  if (plan.traces.empty())
    usage_error("names no trace", file, "Give \"traces\", or a model to \"capture\" some with.");
  check_names(plan, file);
  if (plan.policies.empty() && plan.analyses.empty())
    usage_error("asks for nothing", file, "Give \"policies\", or \"analyses\" of the traces.");
  return plan;
}

boost::json::object effective_study(const StudyPlan& plan, const std::string& from) {
  const fs::path home = absolute(from.empty() ? "." : from);
  StudyConfig config = plan.config;
  change_paths(config, [&](const std::string& path) {
    const fs::path seen = fs::path(absolute(path)).lexically_relative(home);
    return seen.empty() ? path : seen.string();
  });
  return study_document(config);
}

}  // namespace kvsim::analysis
