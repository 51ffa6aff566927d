#pragma once
#include <string>
#include <vector>

namespace kvsim::analysis {

/// Runs of letters and digits in lower case, bytes beyond ASCII counted as letters.
inline std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') ||
        static_cast<signed char>(lower) < 0)
      words.back() += lower;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace kvsim::analysis
