#include "analysis/study/config/study_changes.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <map>

#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

namespace json = boost::json;

constexpr const char* kNothing = "nothing";

std::string shown(const json::value* value) {
  return value == nullptr ? kNothing : json::serialize(*value);
}

std::optional<StudyConflict> first_difference(const std::string& path, const json::value* was,
                                              const json::value* is);

std::optional<StudyConflict> in_objects(const std::string& path, const json::object& was,
                                        const json::object& is) {
  for (const json::object* side : {&was, &is}) {
    for (const auto& member : *side) {
      const std::string name(member.key());
      auto found = first_difference(path.empty() ? name : path + '.' + name, was.if_contains(name),
                                    is.if_contains(name));
      if (found) return found;
    }
  }
  return {};
}

std::optional<StudyConflict> in_lists(const std::string& path, const json::array& was,
                                      const json::array& is) {
  for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
    auto found =
        first_difference(path + '[' + std::to_string(i) + ']', was.if_contains(i), is.if_contains(i));
    if (found) return found;
  }
  return {};
}

std::optional<StudyConflict> first_difference(const std::string& path, const json::value* was,
                                              const json::value* is) {
  if (was != nullptr && is != nullptr) {
    if (*was == *is) return {};
    if (was->is_object() && is->is_object()) return in_objects(path, was->get_object(), is->get_object());
    if (was->is_array() && is->is_array()) return in_lists(path, was->get_array(), is->get_array());
  }
  return StudyConflict{path, shown(was), shown(is)};
}

/// Files that both studies read. One that is named for the prices alone may be another one.
std::optional<StudyConflict> in_inputs(const json::object& was, const json::object& is) {
  if (!was.contains("inputs")) return {};
  json::object mine = was.at("inputs").get_object(), other = is.at("inputs").get_object();
  const auto of_another = [&](const auto& file) {
    const std::string_view role(file.key().data(), file.key().size()), field = role.substr(0, role.find('/'));
    if (field == "machine" || field == "model") return was.at(field) != is.at(field);
    if (!field.starts_with("capture.workloads")) return false;
    return !mine.contains(file.key()) || !other.contains(file.key());  // more prompts, or fewer
  };
  for (json::object* side : {&mine, &other})
    for (auto file = side->begin(); file != side->end();)
      file = of_another(*file) ? side->erase(file) : file + 1;
  std::optional<StudyConflict> found = in_objects("inputs", mine, other);
  if (found) found->input = true;
  return found;
}

/// Prompts that both studies make are made alike: entries at the same place agree but for their number.
std::optional<StudyConflict> in_workloads(const json::array& was, const json::array& is, bool pinned) {
  for (std::size_t i = 0; i < std::min(was.size(), is.size()); ++i) {
    json::object mine = was[i].get_object(), other = is[i].get_object();
    mine.erase("count");
    other.erase("count");
    const bool texts = !mine.at("text").get_string().empty() && !other.at("text").get_string().empty();
    if (pinned && texts) mine.at("text") = other.at("text");
    if (auto found = in_objects("capture.workloads[" + std::to_string(i) + ']', mine, other)) return found;
  }
  return {};
}

std::optional<StudyConflict> in_capture(const json::value& was, const json::value& is, bool pinned) {
  if (!was.is_object() || !is.is_object()) return {};  // all of it came or went
  json::object mine = was.get_object(), other = is.get_object();
  if (auto found = in_workloads(mine.at("workloads").get_array(), other.at("workloads").get_array(), pinned))
    return found;
  for (json::object* side : {&mine, &other}) {
    side->erase("workloads");
    side->erase("prompts");      // compared by name
    side->erase("keep_traces");  // changes no result
    if (pinned) side->erase("model");
  }
  return in_objects("capture", mine, other);
}

using ByName = std::map<std::string, json::object>;

ByName by_name(const json::array& entries) {
  ByName out;
  for (const json::value& entry : entries) {
    const json::object& object = entry.get_object();
    out.emplace(object.at("name").get_string(), object);
  }
  return out;
}

/// Traces that both studies name. A file that could not be read then had no digest.
std::optional<StudyConflict> in_traces(const std::string& path, const ByName& was, const ByName& is) {
  for (const auto& [name, mine] : was) {
    const auto other = is.find(name);
    if (other == is.end()) continue;
    for (const char* key : {"sha256", "workload"}) {
      if (mine.at("sha256").get_string().empty() || other->second.at("sha256").get_string().empty()) continue;
      if (auto found =
              first_difference(path + '[' + name + "]." + key, &mine.at(key), &other->second.at(key)))
        return found;
    }
  }
  return {};
}

std::vector<std::string> missing(const ByName& from, const ByName& in) {
  std::vector<std::string> out;
  for (const auto& [name, entry] : in)
    if (!from.contains(name)) out.push_back(name);
  return out;
}

/// "more traces: a, b, c and 21 others".
void tell(std::vector<std::string>& told, const char* what, std::vector<std::string> names) {
  if (names.empty()) return;
  constexpr std::size_t kShown = 4;
  const std::size_t rest = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - rest);
  told.push_back(what + joined(names) + (rest > 0 ? " and " + std::to_string(rest) + " others" : ""));
}

const json::array& prompts_of(const json::object& study) {
  static const json::array none;
  const json::value& capture = study.at("capture");
  return capture.is_object() ? capture.get_object().at("prompts").get_array() : none;
}

std::optional<StudyConflict> find_conflict(const json::object& was, const json::object& is) {
  for (const char* key : {"policies", "budgets", "bounds", "scopes"})
    if (auto found = first_difference(key, &was.at(key), &is.at(key))) return found;
  if (auto found = in_inputs(was, is)) return found;
  if (auto found = in_capture(was.at("capture"), is.at("capture"), was.contains("inputs"))) return found;
  if (auto found =
          in_traces("traces", by_name(was.at("traces").get_array()), by_name(is.at("traces").get_array())))
    return found;
  return in_traces("capture.prompts", by_name(prompts_of(was)), by_name(prompts_of(is)));
}

}  // namespace

StudyChanges study_changes(const json::object& was, const json::object& is) {
  StudyChanges out;
  out.conflict = find_conflict(was, is);
  if (out.conflict) return out;
  const ByName mine = by_name(was.at("traces").get_array()), other = by_name(is.at("traces").get_array());
  tell(out.taken_over, "more traces: ", missing(mine, other));
  tell(out.taken_over, "no longer studied: ", missing(other, mine));
  if (was.at("capture") != is.at("capture")) out.taken_over.push_back("other prompts to capture");
  std::vector<std::string> changed;
  for (const char* key : {"name", "title", "loops", "evaluate", "seeds", "cuts", "metrics", "analyses",
                          "statistics", "machine", "model", "price_prompts", "report"})
    if (was.at(key) != is.at(key)) changed.emplace_back(key);
  tell(out.taken_over, "changed: ", changed);
  return out;
}

}  // namespace kvsim::analysis
