#include "analysis/results/json_string.hpp"

#include <array>
#include <cstdint>
#include <cstdio>

#include "analysis/results/utf8.hpp"

namespace kvsim::analysis {
namespace {

std::string escaped(char c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      break;
  }
  const auto byte = static_cast<std::uint8_t>(c);
  if (byte >= 0x20 && byte != 0x7f) return std::string(1, c);
  std::array<char, 8> code{};
  std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(byte));
  return code.data();
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\\ufffd";
    } else if (length == 1) {
      out += escaped(text[0]);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out + '"';
}

}  // namespace kvsim::analysis
