#pragma once
/// Byte-level vocabularies (Radford et al. 2019) write each byte as one printable character: the byte's own
/// character if it is printable, else one of the characters from U+0100 on.
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace kvsim::model {

/// Translates text of that alphabet to bytes; leaves any other text unchanged.
std::string bytes_of_alphabet(std::string_view text);
/// Translates bytes to text of that alphabet.
std::string alphabet_of_bytes(std::string_view bytes);

// Tokens of single bytes in character vocabularies, such as "<0x0A>".

/// Text of a byte's token.
inline std::string byte_token_text(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}
/// The byte that a token of that form names, with upper or lower case digits.
inline std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned char byte = 0;
  const char* end = token.data() + 5;
  const auto [stop, failure] = std::from_chars(token.data() + 3, end, byte, 16);
  if (failure != std::errc{} || stop != end) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace kvsim::model
