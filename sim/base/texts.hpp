#pragma once
/// Tables and lists that are written as texts, which CMakeLists.txt compiles in.
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/split.hpp"

namespace kvsim {

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
