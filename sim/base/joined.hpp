#pragma once
/// Lists of words.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

/// The words with a separator between them.
inline std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ") {
  std::string out;
  for (const std::string& item : items) {
    if (!out.empty()) out += separator;
    out += item;
  }
  return out;
}

/// Adds what is not there yet.
inline void add_once(std::vector<std::string>& all, const std::string& item) {
  if (std::find(all.begin(), all.end(), item) == all.end()) all.push_back(item);
}

}  // namespace kvsim
