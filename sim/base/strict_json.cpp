#include "sim/base/strict_json.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim {
namespace {

namespace json = boost::json;

/// Receives the parser's events, builds the document and refuses what Boost.JSON accepts too easily.
class StrictHandler : public NoJsonLimits {
 public:
  explicit StrictHandler(std::size_t max_values) : values_left_(max_values) {}

  const std::string& problem() const { return problem_; }
  json::value release() { return stack_.release(); }

  bool on_document_begin(json::error_code&) {
    stack_.reset();
    return true;
  }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    open_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t n, json::error_code& ec) {
    open_.pop_back();
    stack_.push_object(n);
    return count(ec);
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t n, json::error_code& ec) {
    stack_.push_array(n);
    return count(ec);
  }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& ec) {
    key_.append(part.data(), part.size());
    if (!open_.back().insert(key_).second)
      return fail("the name " + in_quotes(key_) + " occurs twice in one object", ec);
    key_.clear();
    stack_.push_key(part);
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code& ec) {
    stack_.push_string(part);
    return count(ec);
  }
  bool on_number_part(json::string_view part, json::error_code&) {
    digits_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t i, json::string_view, json::error_code& ec) {
    digits_.clear();
    stack_.push_int64(i);
    return count(ec);
  }
  bool on_uint64(std::uint64_t u, json::string_view, json::error_code& ec) {
    digits_.clear();
    stack_.push_uint64(u);
    return count(ec);
  }
  /// Parses again, because Boost.JSON's own `d` may be a neighbour of the nearest double.
  bool on_double(double d, json::string_view part, json::error_code& ec) {
    digits_.append(part.data(), part.size());
    const double number = number_of<double>(digits_).value_or(d);
    if (!std::isfinite(number)) return fail("the number " + in_quotes(digits_) + " is too large", ec);
    stack_.push_double(number);
    digits_.clear();
    return count(ec);
  }
  bool on_bool(bool b, json::error_code& ec) {
    stack_.push_bool(b);
    return count(ec);
  }
  bool on_null(json::error_code& ec) {
    stack_.push_null();
    return count(ec);
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  bool fail(std::string problem, json::error_code& ec) {
    problem_ = std::move(problem);
    ec = json::error::exception;
    return false;
  }
  bool count(json::error_code& ec) {
    if (values_left_ == 0) return fail("more values than any sound file of this kind holds", ec);
    --values_left_;
    return true;
  }

  json::value_stack stack_;
  std::vector<std::unordered_set<std::string>> open_;  // names seen in each object being read
  std::string key_, digits_, problem_;
  std::size_t values_left_;
};

}  // namespace

json::value parse_strict_json(std::string_view text, const std::string& where, std::size_t max_values) {
  json::basic_parser<StrictHandler> parser(json::parse_options{}, max_values);
  json::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  const std::string position = "byte " + std::to_string(used);
  if (!parser.handler().problem().empty()) input_error(parser.handler().problem(), where + ", " + position);
  if (ec) input_error("not valid JSON: " + ec.message(), where + ", " + position);
  if (used < text.size()) input_error("text after the end of the JSON document", where + ", " + position);
  return parser.handler().release();
}

JsonObject::JsonObject(const json::value& value, std::string where)
    : object_(value.if_object()), where_(std::move(where)) {
  if (object_ == nullptr) input_error("expected a JSON object", where_);
}

const json::value* JsonObject::find(std::string_view key) const {
  if (asked_ != nullptr) asked_->emplace(key);
  const json::value* value = object_->if_contains({key.data(), key.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

const json::value& JsonObject::at(std::string_view key) const {
  const json::value* value = find(key);
  if (value == nullptr) input_error("missing " + in_quotes(key), where_);
  return *value;
}

std::uint64_t json_integer(const json::value& value, const std::string& where, std::uint64_t low,
                           std::uint64_t high) {
  std::uint64_t number = 0;
  if (value.is_uint64()) {
    number = value.get_uint64();
  } else if (value.is_int64() && value.get_int64() >= 0) {
    number = static_cast<std::uint64_t>(value.get_int64());
  } else {
    input_error("expected an integer of at least " + std::to_string(low), where);
  }
  if (number < low || number > high)
    input_error(std::to_string(number) + " is outside " + std::to_string(low) + ".." + std::to_string(high),
                where);
  return number;
}

std::uint64_t JsonObject::integer(std::string_view key, std::uint64_t low, std::uint64_t high) const {
  return json_integer(at(key), path(key), low, high);
}

std::uint64_t JsonObject::integer_or(std::string_view key, std::uint64_t low, std::uint64_t high,
                                     std::uint64_t absent) const {
  return has(key) ? integer(key, low, high) : absent;
}

double JsonObject::number(std::string_view key, double low, double high) const {
  const json::value& value = at(key);
  if (!value.is_number()) input_error("expected a number", path(key));
  const auto number = value.to_number<double>();
  if (!(number >= low && number <= high))
    input_error(shortest(number) + " is outside " + shortest(low) + ".." + shortest(high), path(key));
  return number;
}

double JsonObject::number_or(std::string_view key, double low, double high, double absent) const {
  return has(key) ? number(key, low, high) : absent;
}

bool JsonObject::flag_or(std::string_view key, bool absent) const {
  const json::value* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_bool()) input_error("expected true or false", path(key));
  return value->get_bool();
}

std::string JsonObject::text(std::string_view key) const {
  const json::value& value = at(key);
  if (!value.is_string()) input_error("expected a string", path(key));
  return {value.get_string().data(), value.get_string().size()};
}

std::string JsonObject::text_or(std::string_view key, const std::string& absent) const {
  return has(key) ? text(key) : absent;
}

JsonObject JsonObject::object(std::string_view key) const {
  return {at(key), path(key)};
}

const json::array& JsonObject::array(std::string_view key) const {
  const json::value& value = at(key);
  if (!value.is_array()) input_error("expected a JSON array", path(key));
  return value.get_array();
}

}  // namespace kvsim
