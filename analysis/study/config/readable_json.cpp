#include <boost/json.hpp>

#include "analysis/results/json_string.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/study/config/study_fields.hpp"

namespace kvsim::analysis {
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

}  // namespace kvsim::analysis
