#pragma once
/// Joins words with a separator.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

inline std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ") {
  std::string out;
  for (const std::string& item : items) {
    if (!out.empty()) out += separator;
    out += item;
  }
  return out;
}

}  // namespace kvsim
