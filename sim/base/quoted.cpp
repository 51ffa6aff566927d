#include "sim/base/quoted.hpp"

#include <cstdio>

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

}  // namespace kvsim
