#include "sim/base/split.hpp"

#include <algorithm>

namespace kvsim {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<std::string> comma_list(std::string_view text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ',';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (at < text.size() && (c != ',' || depth > 0)) continue;
    out.emplace_back(trimmed(text.substr(begin, at - begin)));
    begin = at + 1;
  }
  return out;
}

}  // namespace kvsim
