#include "sim/base/wrapped_text.hpp"

#include <sstream>

namespace kvsim {

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

}  // namespace kvsim
