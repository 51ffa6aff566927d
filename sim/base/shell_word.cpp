#include "sim/base/shell_word.hpp"

#include <algorithm>

namespace kvsim {

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
