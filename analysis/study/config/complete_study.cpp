// Filling in what a study file leaves out, and refusing what it should not say.
#include <boost/json.hpp>
#include <cmath>
#include <string_view>

#include "analysis/results/numbers.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
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

std::string_view last_name(const Field& field) {
  const std::string_view path = field.path;
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

[[noreturn]] void wrong_type(const char* expected, const std::string& shown) {
  usage_error(std::string("expected ") + expected, shown);
}

json::value whole_number(const Field& field, const json::value& given, const std::string& shown) {
  const double high = field.high > 0 ? field.high : kLargestWhole;
  const bool whole = given.is_int64() || given.is_uint64();
  const double value = whole ? given.to_number<double>() : -1;
  if (!whole || value < field.low || value > high)
    wrong_type(("a whole number, " + std::string(field.allowed)).c_str(), shown);
  return given.to_number<std::uint64_t>();
}

json::value number(const Field& field, const json::value& given, const std::string& shown) {
  const double value = given.is_number() ? given.to_number<double>() : std::nan("");
  if (!(value >= field.low && value <= field.high))
    wrong_type(("a number, " + std::string(field.allowed)).c_str(), shown);
  return value;
}

/// "a | b" lists every word there is.
void check_word(const Field& field, const std::string& word, const std::string& shown) {
  const std::string_view allowed = field.allowed;
  if (allowed.find(" | ") == std::string_view::npos) return;
  std::vector<std::string> known;
  for (std::size_t at = 0; at < allowed.size();) {
    const std::size_t end = std::min(allowed.find(" | ", at), allowed.size());
    known.emplace_back(allowed.substr(at, end - at));
    if (known.back() == word) return;
    at = end + 3;
  }
  usage_error("unknown word '" + word + "'", shown, suggestion(word, known));
}

json::value text(const Field& field, const json::value& given, const std::string& shown) {
  if (!given.is_string()) wrong_type("text", shown);
  check_word(field, std::string(given.get_string()), shown);
  return given;
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

json::value texts(const json::value& given, const std::string& shown) {
  json::array out;
  if (!given.is_array()) {
    if (given.is_object() || given.is_bool() || given.is_double()) wrong_type("a list of text", shown);
    out.emplace_back(as_typed(given, shown));
    return out;
  }
  for (const json::value& item : given.get_array()) {
    if (!item.is_string() && !item.is_int64() && !item.is_uint64())
      wrong_type("text", item_path(shown, out.size()));
    out.emplace_back(as_typed(item, shown));
  }
  return out;
}

json::value wholes(const Field& field, const json::value& given, const std::string& shown) {
  if (!given.is_array()) return json::array{whole_number(field, given, shown)};
  json::array out;
  for (const json::value& item : given.get_array())
    out.push_back(whole_number(field, item, item_path(shown, out.size())));
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
  if (given.is_string() && *field.shorthand != '\0')
    return complete_section(json::object{{field.shorthand, given}}, place);
  return complete_section(given, place);
}

json::value sections(const Field& field, const json::value& given, const std::string& shown) {
  const std::string schema = std::string(field.path) + "[]";
  if (!given.is_array()) return json::array{complete_item(field, given, schema, shown)};
  json::array out;
  for (const json::value& item : given.get_array())
    out.push_back(complete_item(field, item, schema, item_path(shown, out.size())));
  return out;
}

json::value complete_field(const Field& field, const json::value& given, const std::string& shown) {
  switch (field.type) {
    case FieldType::text:
      return text(field, given, shown);
    case FieldType::whole:
      return whole_number(field, given, shown);
    case FieldType::number:
      return number(field, given, shown);
    case FieldType::flag:
      if (!given.is_bool()) wrong_type("true or false", shown);
      return given;
    case FieldType::texts:
      return texts(given, shown);
    case FieldType::wholes:
      return wholes(field, given, shown);
    case FieldType::section:
      if (given.is_null()) return nullptr;
      return complete_section(given, {std::string(field.path) + '.', shown + '.'});
    case FieldType::sections:
      return sections(field, given, shown);
    case FieldType::anything:
      return anything(given, shown);
    case FieldType::ignored:
      return given;
  }
  bug("a field without a type");
}

void refuse_unknown(const json::object& given, const Place& place,
                    const std::vector<const Field*>& known_fields) {
  std::vector<std::string> known;
  for (const Field* field : known_fields) known.emplace_back(last_name(*field));
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
    const std::string name(last_name(*field));
    if (name == "*") continue;
    const std::string shown = place.shown + name;
    const json::value* value = object.if_contains(name);
    const bool absent = value == nullptr || value->is_null();
    if (absent && *field->standard == '\0') usage_error("must be given", shown, field->description);
    out[name] = complete_field(*field, absent ? json::parse(field->standard) : *value, shown);
  }
  if (const Field* open = field_at(place.schema + '*')) {
    for (const auto& member : object)
      if (!out.contains(member.key()) && !member.value().is_null())
        out[member.key()] = complete_field(*open, member.value(), place.shown + std::string(member.key()));
  }
  return out;
}

}  // namespace

json::object complete_study(const json::value& given, const std::string& where) {
  return complete_section(given, {"", where + ' '});
}

}  // namespace kvsim::analysis
