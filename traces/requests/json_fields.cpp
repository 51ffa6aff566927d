#include "traces/requests/json_fields.hpp"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cmath>

#include "sim/base/enum_names.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::requests {
namespace {

namespace json = boost::json;

constexpr std::size_t kLevels = 32;
constexpr std::size_t kNoField = static_cast<std::size_t>(-1);

bool is_list(FieldKind kind) {
  return kind == FieldKind::ids || kind == FieldKind::wholes;
}

constexpr const char* kWanted[] = {
    "a whole number from 0 to 18446744073709551615", "a number", "a string or a whole number",
    "a list of ids: whole numbers of 64 bits, or strings", "a list of whole numbers"};

/// What the parser of Boost.JSON calls; the limits are those of a line.
struct Handler : NoJsonLimits {
  explicit Handler(const std::vector<Field>& wanted_fields)
      : fields(wanted_fields),
        seen(fields.size()),
        present(fields.size()),
        wholes(fields.size()),
        reals(fields.size()),
        names(fields.size()),
        lists(fields.size()) {}

  void clear() {
    std::fill(seen.begin(), seen.end(), false);
    std::fill(present.begin(), present.end(), false);
    for (std::vector<std::uint64_t>& list : lists) list.clear();
    depth = 0;
    current = kNoField;
    in_list = false;
    text.clear();
    problem.clear();
  }

  bool fail(std::string what, json::error_code& ec) {
    problem = std::move(what);
    ec = json::error::exception;
    return false;
  }
  bool wrong(json::error_code& ec) {
    return fail(
        "the field " + in_quotes(fields[current].name) + " is not " + name_in(kWanted, fields[current].kind),
        ec);
  }
  /// Whether a value that begins now is one of a wanted field, or of its list.
  bool here() const { return current != kNoField && depth == (in_list ? 2U : 1U); }
  FieldKind kind() const { return fields[current].kind; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec) {
    if (here()) return wrong(ec);
    ++depth;
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    --depth;
    return true;
  }
  bool on_array_begin(json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    if (here()) {
      if (in_list || !is_list(kind())) return wrong(ec);
      in_list = true;
      present[current] = true;
    }
    ++depth;
    return true;
  }
  bool on_array_end(std::size_t, json::error_code&) {
    --depth;
    if (in_list && depth == 1) in_list = false;
    return true;
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    if (depth == 1) text.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& ec) {
    if (depth != 1) return true;
    std::string_view key(part.data(), part.size());
    if (!text.empty()) {
      text.append(part.data(), part.size());
      key = text;
    }
    if (all_names != nullptr) all_names->emplace_back(key);
    current = kNoField;
    for (std::size_t i = 0; i < fields.size() && current == kNoField; ++i)
      if (fields[i].name == key) current = i;
    text.clear();
    if (current == kNoField) return true;
    if (seen[current]) return fail("the name " + in_quotes(fields[current].name) + " occurs twice", ec);
    seen[current] = true;
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    if (here()) text.append(part.data(), part.size());
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    if (!here()) return true;
    text.append(part.data(), part.size());
    if (in_list && kind() == FieldKind::ids) {
      lists[current].push_back(text_id(text));
    } else if (!in_list && kind() == FieldKind::name) {
      names[current] = text;
      present[current] = true;
    } else {
      return wrong(ec);
    }
    text.clear();
    return true;
  }
  bool on_number_part(json::string_view part, json::error_code&) {
    if (here()) text.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t i, json::string_view part, json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    if (!here()) return true;
    if (i >= 0) return on_uint64(static_cast<std::uint64_t>(i), part, ec);
    text.clear();
    if (!in_list && kind() == FieldKind::real) return set_real(static_cast<double>(i));
    if (!in_list && kind() == FieldKind::name) return set_name(std::to_string(i));
    if (in_list && kind() == FieldKind::ids) return fail("the id " + std::to_string(i) + " is negative", ec);
    return wrong(ec);
  }
  bool on_uint64(std::uint64_t u, json::string_view, json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    if (!here()) return true;
    text.clear();
    if (in_list) {
      lists[current].push_back(u);
      return true;
    }
    switch (kind()) {
      case FieldKind::whole:
        wholes[current] = u;
        present[current] = true;
        return true;
      case FieldKind::real:
        return set_real(static_cast<double>(u));
      case FieldKind::name:
        return set_name(std::to_string(u));
      default:
        return wrong(ec);
    }
  }
  /// Reads the digits again, because the parser's own number may be a neighbour of the nearest double.
  bool on_double(double d, json::string_view part, json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    if (!here()) return true;
    if (in_list || kind() != FieldKind::real) return wrong(ec);
    text.append(part.data(), part.size());
    const double number = number_of<double>(text).value_or(d);
    text.clear();
    if (!std::isfinite(number)) return wrong(ec);
    return set_real(number);
  }
  bool on_bool(bool, json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    return here() ? wrong(ec) : true;
  }
  bool on_null(json::error_code& ec) {
    if (depth == 0) return fail("is not a JSON object", ec);
    return here() && in_list ? wrong(ec) : true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

  bool set_real(double number) {
    reals[current] = number;
    present[current] = true;
    return true;
  }
  bool set_name(std::string name) {
    names[current] = std::move(name);
    present[current] = true;
    return true;
  }

  const std::vector<Field>& fields;
  std::vector<bool> seen, present;
  std::vector<std::uint64_t> wholes;
  std::vector<double> reals;
  std::vector<std::string> names;
  std::vector<std::vector<std::uint64_t>> lists;
  std::size_t depth = 0, current = kNoField;
  bool in_list = false;
  std::string text, problem;
  std::vector<std::string>* all_names = nullptr;  ///< takes those of the outermost object, wanted or not
};

json::parse_options limited() {
  json::parse_options options;
  options.max_depth = kLevels;
  return options;
}

}  // namespace

class JsonFields::Parser {
 public:
  explicit Parser(const std::vector<Field>& fields) : parser_(limited(), fields) {}
  Handler& handler() { return parser_.handler(); }

  bool parse(std::string_view line) {
    handler().clear();
    parser_.reset();
    ec_ = {};
    size_ = line.size();
    used_ = parser_.write_some(false, line.data(), line.size(), ec_);
    return !ec_ && used_ == line.size();
  }
  /// Why parse() did not succeed; empty: it did.
  std::string problem() {
    if (!handler().problem.empty()) return handler().problem;
    const std::string place = " at byte " + std::to_string(used_);
    if (ec_) return "is not valid JSON: " + ec_.message() + place;
    return used_ < size_ ? "has text behind the JSON object" + place : "";
  }

 private:
  json::basic_parser<Handler> parser_;
  json::error_code ec_;
  std::size_t used_ = 0, size_ = 0;
};

JsonFields::JsonFields(std::vector<Field> fields)
    : fields_(std::move(fields)), parser_(std::make_unique<Parser>(fields_)) {}
JsonFields::~JsonFields() = default;

bool JsonFields::parse(std::string_view line) {
  if (!parser_->parse(line)) return false;
  for (std::size_t i = 0; i < fields_.size(); ++i)
    if (fields_[i].required && !has(i)) return false;
  return true;
}

void JsonFields::refuse(std::string_view line, const std::string& where) const {
  if (const std::string problem = parser_->problem(); !problem.empty()) input_error(problem, where);
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (!fields_[i].required || has(i)) continue;
    const std::vector<std::string> near = nearest(fields_[i].name, json_names(line), 1);
    input_error(
        "has no field " + in_quotes(fields_[i].name), where,
        near.empty() || near.front() == fields_[i].name ? "" : "Is " + in_quotes(near.front()) + " meant?");
  }
  bug("refuses a line without a reason", where);
}

bool JsonFields::has(std::size_t field) const {
  return parser_->handler().present[field];
}
std::uint64_t JsonFields::whole(std::size_t field) const {
  return parser_->handler().wholes[field];
}
double JsonFields::real(std::size_t field) const {
  return parser_->handler().reals[field];
}
const std::string& JsonFields::name(std::size_t field) const {
  return parser_->handler().names[field];
}
const std::vector<std::uint64_t>* JsonFields::list(std::size_t field) const {
  return has(field) ? &parser_->handler().lists[field] : nullptr;
}

std::vector<std::string> json_names(std::string_view line) {
  if (line.find_first_not_of(" \t") == std::string_view::npos || line[line.find_first_not_of(" \t")] != '{')
    return {};
  const std::vector<Field> none;
  std::vector<std::string> names;
  json::basic_parser<Handler> parser(limited(), none);
  parser.handler().all_names = &names;
  json::error_code ec;
  parser.write_some(false, line.data(), line.size(), ec);
  return names;
}

std::uint64_t text_id(std::string_view text) {
  return mix(key_of(text));
}

}  // namespace kvsim::requests
