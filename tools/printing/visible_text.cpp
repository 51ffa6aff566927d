#include "tools/printing/visible_text.hpp"

#include <array>
#include <cstdio>
#include <sstream>
#include <utility>

namespace kvsim::tools {
namespace {

constexpr int kLead = 0xc2;  ///< of U+0080 to U+00BF in UTF-8

}  // namespace

std::streambuf::int_type VisibleText::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const int byte = c & 0xff;
  const bool continues = byte >= 0x80 && byte < 0xc0;
  if (std::exchange(held_, false) && byte >= 0xa0 && continues) to_.sputc(static_cast<char>(kLead));
  const bool ascii = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
  if (ascii || (following_ == 0 && byte >= 0x80 && byte < 0xa0)) {
    std::array<char, 8> shown{};
    const int length = std::snprintf(shown.data(), shown.size(), "\\x%02x", static_cast<unsigned>(byte));
    return to_.sputn(shown.data(), length) == length ? c : traits_type::eof();
  }
  following_ = continues      ? following_ - (following_ > 0 ? 1 : 0)
               : byte >= 0xf0 ? 3
               : byte >= 0xe0 ? 2
               : byte > kLead ? 1
                              : 0;
  held_ = byte == kLead;
  return held_ ? c : to_.sputc(static_cast<char>(byte));
}

std::string visible(std::string_view text) {
  std::stringbuf out;
  VisibleText shown(out);
  shown.sputn(text.data(), static_cast<std::streamsize>(text.size()));
  return out.str();
}

}  // namespace kvsim::tools
