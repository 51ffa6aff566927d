#pragma once
/// Text in pieces.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

inline bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// Without the white space at both ends: spaces, tabs, line ends.
std::string_view trimmed(std::string_view text);

/// As far as the first line's end.
inline std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

/// What stands between separators, at least one piece; n separators make n + 1.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The items of a comma list, each trimmed, at least one. A comma inside parentheses separates nothing, so
/// "snapkv(window=8,pool=max:7),h2o" has two items.
std::vector<std::string> comma_list(std::string_view text);

// Tables and lists that are written as texts, which CMakeLists.txt compiles in.

/// A table: the fields of each line, which stand between bars. The first line says what they are, and is left
/// out.
inline std::vector<std::vector<std::string>> text_rows(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string_view line : split(trimmed(text), '\n'))
    for (std::vector<std::string>& row = rows.emplace_back(); const std::string_view field : split(line, '|'))
      row.emplace_back(trimmed(field));
  rows.erase(rows.begin());
  return rows;
}

/// Lists of words: those of each paragraph.
inline std::vector<std::vector<std::string>> text_words(std::string_view text) {
  std::vector<std::vector<std::string>> lists(1);
  for (const std::string_view line : split(trimmed(text), '\n')) {
    if (line.empty()) lists.emplace_back();
    for (const std::string_view word : split(line, ' '))
      if (!word.empty()) lists.back().emplace_back(word);
  }
  return lists;
}

}  // namespace kvsim
