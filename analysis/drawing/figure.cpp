#include "analysis/drawing/figure.hpp"

#include "analysis/results/json_string.hpp"

namespace kvsim::analysis {
namespace {

/// U+FFFE and U+FFFF are characters of Unicode, but none of XML.
bool xml_forbids(std::string_view character) {
  return character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf";
}

/// The first `count` characters.
std::string_view front(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  while (count > 0 && end < text.size()) {
    end += utf8_length(text.substr(end));
    --count;
  }
  return text.substr(0, end);
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length);
    if (length == 0 || xml_forbids(character)) {
      out += "\xef\xbf\xbd";
    } else if (length == 1 && (static_cast<unsigned char>(text[0]) < 0x20 || text[0] == '\x7f')) {
      out += ' ';
    } else {
      out += character;
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string shortened(const std::string& text, std::size_t limit) {
  const std::size_t length = characters(text);
  if (length <= limit || limit < 3) return text;
  const std::size_t tail = (limit - 1) / 2, head = limit - 1 - tail;
  return std::string(front(text, head)) + "…" + text.substr(front(text, length - tail).size());
}

}  // namespace kvsim::analysis
