#include "policies/api/call_syntax.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/param_value.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::policy {
namespace {

constexpr std::size_t kLongest = 4096;  // characters; far above any composition, far below what would be slow

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-';
}

class CallReader {
 public:
  CallReader(std::string_view text, std::string_view form) : text_(text), form_(form) {}

  std::vector<Call> calls() {
    std::vector<Call> out;
    do out.push_back(call());
    while (take('+'));
    if (at_ != text_.size()) fail("expected '+' or the end of the text");
    return out;
  }

 private:
  Call call() {
    Call out;
    out.name = name("a policy name");
    if (!take('(') || take(')')) return out;
    do out.arguments.push_back(argument(out));
    while (take(','));
    if (!take(')')) fail("expected ',' or ')'");
    return out;
  }

  Call::Argument argument(const Call& call) {
    Call::Argument out;
    out.name = name("a parameter name");
    if (!take('=')) fail("expected '=' and a value after " + out.name);
    out.value = value();
    if (out.value.empty()) fail("expected a value for " + out.name);
    const auto same = [&](const Call::Argument& other) { return other.name == out.name; };
    if (std::any_of(call.arguments.begin(), call.arguments.end(), same)) fail(out.name + " is given twice");
    return out;
  }

  std::string name(std::string_view what) {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (at_ == begin) fail("expected " + std::string(what));
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string value() {
    const std::size_t begin = at_;
    for (std::size_t depth = 0; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (depth == 0 && (c == ',' || c == ')')) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
    }
    return std::string(trimmed(text_.substr(begin, at_ - begin)));
  }

  bool take(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  /// Shows the text with everything before the offending character marked off.
  [[noreturn]] void fail(const std::string& what) const {
    const bool end = at_ == text_.size();
    usage_error(what + (end ? " at the end" : " at character " + std::to_string(at_ + 1)),
                "policy \"" + std::string(text_) + "\"", form_);
  }

  std::string_view text_, form_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Call> parse_calls(std::string_view text, std::string_view form) {
  if (text.size() > kLongest)
    usage_error("a policy of " + std::to_string(text.size()) + " characters; at most " +
                std::to_string(kLongest));
  const auto strange = std::find_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && !is_space(c)) || byte >= 0x7f;
  });
  if (strange != text.end())
    usage_error("a policy is written in printable ASCII; character " +
                std::to_string(strange - text.begin() + 1) + " is not");
  return CallReader(text, form).calls();
}

Params option_list(std::string_view text, const std::vector<ParamSpec>& specs, std::string_view where) {
  const std::string place(where);
  std::vector<Call> calls;
  try {
    calls = parse_calls(place + "(" + std::string(text) + ")");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
  }
  if (calls.size() != 1)
    usage_error("'" + std::string(text) + "' is not a list of NAME=VALUE", place,
                "Such as " + specs[0].name + "=" + specs[0].fallback + ".");
  const std::vector<Call::Argument>& typed = calls[0].arguments;
  const std::vector<std::string> known = param_names(specs);
  for (const Call::Argument& argument : typed)
    if (std::find(known.begin(), known.end(), argument.name) == known.end())
      usage_error("unknown option '" + argument.name + "'", place, suggestion(argument.name, known));
  Params out;
  for (const ParamSpec& spec : specs) {
    const auto given = std::find_if(typed.begin(), typed.end(),
                                    [&](const Call::Argument& a) { return a.name == spec.name; });
    out.entries.push_back(parse_value(spec, given == typed.end() ? spec.fallback : given->value, where));
  }
  return out;
}

}  // namespace kvsim::policy
