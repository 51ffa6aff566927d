#include "analysis/study/config/study_config.hpp"

#include <algorithm>
#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <string_view>

#include "analysis/results/json_string.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"

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

namespace {

namespace json = boost::json;

constexpr std::size_t kLineLength = 110;

std::string text_of(const json::string& text) {
  return json_string({text.data(), text.size()});
}

/// One line where it fits, unless it is the whole document.
void write(std::string& out, const json::value& value, const std::string& indent) {
  const std::string line = json_line(value);
  if (!indent.empty() && indent.size() + line.size() <= kLineLength) {
    out += line;
    return;
  }
  const std::string inner = indent + "  ";
  const char* separator = "\n";
  if (value.is_array()) {
    out += '[';
    for (const json::value& item : value.get_array()) {
      out += separator + inner;
      write(out, item, inner);
      separator = ",\n";
    }
    out += '\n' + indent + ']';
  } else if (value.is_object()) {
    out += '{';
    for (const auto& member : value.get_object()) {
      out += separator + inner + json_string({member.key().data(), member.key().size()}) + ": ";
      write(out, member.value(), inner);
      separator = ",\n";
    }
    out += '\n' + indent + '}';
  } else {
    out += line;
  }
}

}  // namespace

std::string json_line(const json::value& value) {
  if (value.is_string()) return text_of(value.get_string());
  if (value.is_double()) return exact_text(value.get_double());
  if (value.is_array()) {
    std::string out;
    for (const json::value& item : value.get_array()) out += (out.empty() ? "" : ", ") + json_line(item);
    return '[' + out + ']';
  }
  if (value.is_object()) {
    std::string out;
    for (const auto& member : value.get_object())
      out += (out.empty() ? "" : ", ") + json_string({member.key().data(), member.key().size()}) + ": " +
             json_line(member.value());
    return '{' + out + '}';
  }
  return json::serialize(value);
}

std::string readable_json(const json::value& document) {
  std::string out;
  write(out, document, "");
  return out + '\n';
}

namespace {

namespace json = boost::json;

constexpr double kLargestWhole = 9007199254740992.0;  // every whole number up to here is itself in any reader

/// A section being read: where it stands among the fields ("capture.workloads[].") and in the file
/// ("study.json capture.workloads[1].").
struct Place {
  std::string schema, shown;
};

const Field* field_at(const std::string& path) {
  for (const Field& field : study_fields())
    if (path == field.path) return &field;
  return nullptr;
}

/// Direct fields of a section, in order.
std::vector<const Field*> children(const std::string& schema) {
  std::vector<const Field*> out;
  for (const Field& field : study_fields()) {
    const std::string_view path = field.path;
    if (!path.starts_with(schema)) continue;
    const std::string_view rest = path.substr(schema.size());
    if (rest.find_first_of(".[") == std::string_view::npos) out.push_back(&field);
  }
  return out;
}

[[noreturn]] void wrong_type(const char* expected, const std::string& shown) {
  usage_error(std::string("expected ") + expected, shown);
}

json::value json_of(const ParamValue& value) {
  if (is_list(value.type)) {
    json::array out;
    for (const ParamValue& item : value.items) out.push_back(json_of(item));
    return out;
  }
  if (value.type == ParamType::count) return value.whole;
  if (value.type == ParamType::real) return value.number;
  if (value.type == ParamType::flag) return value.number != 0;
  return json::value(value.text);
}

/// A number or a flag as it would be typed.
std::string as_typed(const json::value& given, const std::string& shown) {
  if (given.is_string()) return std::string(given.get_string());
  if (given.is_bool()) return given.get_bool() ? "true" : "false";
  if (given.is_double() && std::isfinite(given.get_double())) return exact_text(given.get_double());
  if (given.is_int64() || given.is_uint64()) return json::serialize(given);
  wrong_type("text, a number, true or false, or a list of these", shown);
}

std::string item_path(const std::string& shown, std::size_t index) {
  return shown + '[' + std::to_string(index) + ']';
}

/// Whether a single value has the JSON type of its parameter.
bool has_type(const json::value& given, ParamType type) {
  const bool whole = given.is_int64() || given.is_uint64();
  if (type == ParamType::count) return whole;
  if (type == ParamType::real) return given.is_number();
  if (type == ParamType::flag) return given.is_bool();
  return given.is_string();
}

json::value single_value(ParamSpec param, const json::value& given, const std::string& shown) {
  if (!has_type(given, param.type)) refuse_value(param, json::serialize(given), shown);
  param.max = std::min(param.max, kLargestWhole);
  return json_of(parse_value(param, as_typed(given, shown), shown));
}

/// A whole number is a text of a list of texts too: budgets are often numbers.
json::value list_item(const ParamSpec& param, const json::value& given, const std::string& shown) {
  const bool number = param.type == ParamType::texts && (given.is_int64() || given.is_uint64());
  return single_value(item_spec(param), number ? json::value(as_typed(given, shown)) : given, shown);
}

json::value parameter(const ParamSpec& param, const json::value& given, const std::string& shown) {
  if (!is_list(param.type)) return single_value(param, given, shown);
  if (given.is_object()) refuse_value(param, json::serialize(given), shown);
  if (!given.is_array()) return json::array{list_item(param, given, shown)};
  json::array out;
  for (const json::value& item : given.get_array())
    out.push_back(list_item(param, item, item_path(shown, out.size())));
  return out;
}

/// A setting of an analysis: what a list holds is joined as the command line joins it.
json::value anything(const json::value& given, const std::string& shown) {
  if (!given.is_array()) return json::value(as_typed(given, shown));
  std::string joined;
  for (const json::value& item : given.get_array())
    joined += (joined.empty() ? "" : ",") + as_typed(item, shown);
  return json::value(joined);
}

json::object complete_section(const json::value& given, const Place& place);

json::value complete_item(const Field& field, const json::value& given, const std::string& schema,
                          const std::string& shown) {
  const Place place{schema + '.', shown + '.'};
  if (given.is_string() && !field.shorthand.empty())
    return complete_section(json::object{{field.shorthand, given}}, place);
  return complete_section(given, place);
}

json::value sections(const Field& field, const json::value& given, const std::string& shown) {
  const std::string schema = field.path + "[]";
  if (!given.is_array()) return json::array{complete_item(field, given, schema, shown)};
  json::array out;
  for (const json::value& item : given.get_array())
    out.push_back(complete_item(field, item, schema, item_path(shown, out.size())));
  return out;
}

json::value complete_field(const Field& field, const json::value& given, const std::string& shown) {
  switch (field.shape) {
    case FieldShape::value:
      return parameter(field.param, given, shown);
    case FieldShape::section:
      if (given.is_null()) return nullptr;
      return complete_section(given, {field.path + '.', shown + '.'});
    case FieldShape::sections:
      return sections(field, given, shown);
    case FieldShape::anything:
      return anything(given, shown);
    case FieldShape::ignored:
      return given;
  }
  bug("a field without a shape");
}

void refuse_unknown(const json::object& given, const Place& place,
                    const std::vector<const Field*>& known_fields) {
  std::vector<std::string> known;
  for (const Field* field : known_fields) known.push_back(field->param.name);
  for (const auto& member : given) {
    const std::string name(member.key());
    const std::string path = place.schema + name;
    if (name != "*" && (field_at(path) != nullptr || field_at(place.schema + '*') != nullptr)) continue;
    usage_error("no such field", place.shown + name, suggestion(name, known));
  }
}

json::object complete_section(const json::value& given, const Place& place) {
  if (!given.is_object()) wrong_type("an object { }", place.shown.substr(0, place.shown.size() - 1));
  const json::object& object = given.get_object();
  const std::vector<const Field*> known = children(place.schema);
  refuse_unknown(object, place, known);
  json::object out;
  for (const Field* field : known) {
    const std::string& name = field->param.name;
    if (name == "*") continue;
    const std::string shown = place.shown + name;
    const json::value* value = object.if_contains(name);
    const bool absent = value == nullptr || value->is_null();
    if (absent && field->param.required) usage_error("must be given", shown, field->param.help);
    out[name] = complete_field(*field, absent ? default_of(*field) : *value, shown);
  }
  if (const Field* open = field_at(place.schema + '*')) {
    for (const auto& member : object)
      if (!out.contains(member.key()) && !member.value().is_null())
        out[member.key()] = complete_field(*open, member.value(), place.shown + std::string(member.key()));
  }
  return out;
}

}  // namespace

json::value default_of(const Field& field) {
  if (field.param.required) return nullptr;
  if (field.shape != FieldShape::value) return json::parse(field.param.fallback);
  if (is_list(field.param.type) && field.param.fallback.empty()) return json::array();
  return json_of(parse_value(field.param, field.param.fallback, field.path));
}

json::object complete_study(const json::value& given, const std::string& where) {
  return complete_section(given, {"", where + ' '});
}

}  // namespace kvsim::analysis
