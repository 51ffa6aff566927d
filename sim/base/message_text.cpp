#include "sim/base/message_text.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace kvsim {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    }
  }
  return out + (text.size() > kShown ? "...\"" : "\"");
}

std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

std::vector<std::string> wrapped(const std::string& text, std::size_t limit) {
  std::istringstream words(text);
  std::vector<std::string> lines;
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && characters(line) + 1 + characters(word) > limit) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string wrapped_text(const std::string& text, std::size_t limit, std::size_t indent) {
  std::string out;
  for (const std::string& line : wrapped(text, limit - indent)) out += std::string(indent, ' ') + line + '\n';
  return out;
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "_-./%+=,:@";
  const bool plain =
      !text.empty() && text.front() != '=' && std::all_of(text.begin(), text.end(), [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               kPlain.find(c) != std::string_view::npos;
      });
  return plain ? std::string(text) : shell_quoted(text);
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + shell_word(word);
  return out;
}

}  // namespace kvsim
