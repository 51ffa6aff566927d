#include "traces/model/tokenizers/byte_level.hpp"

#include <array>

namespace kvsim::model {
namespace {

constexpr unsigned kFirstStandIn = 0x100;

constexpr bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// The character of each byte.
constexpr std::array<unsigned, 256> make_alphabet() {
  std::array<unsigned, 256> alphabet{};
  unsigned stand_in = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) alphabet[byte] = is_printable(byte) ? byte : stand_in++;
  return alphabet;
}
constexpr std::array<unsigned, 256> kAlphabet = make_alphabet();
constexpr unsigned kAlphabetEnd = kFirstStandIn + 68;  // 68 bytes are not printable

constexpr std::array<int, kAlphabetEnd> make_inverse() {
  std::array<int, kAlphabetEnd> inverse{};
  for (int& byte : inverse) byte = -1;
  for (unsigned byte = 0; byte < 256; ++byte) inverse[kAlphabet[byte]] = static_cast<int>(byte);
  return inverse;
}
constexpr std::array<int, kAlphabetEnd> kInverse = make_inverse();

/// UTF-8 of a character below U+0800.
void append_character(std::string& text, unsigned character) {
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else {
    text += static_cast<char>(0xc0 | character >> 6);
    text += static_cast<char>(0x80 | (character & 0x3f));
  }
}

}  // namespace

std::string bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      if ((character & 0xe0) != 0xc0 || i + 1 == text.size()) return std::string(text);
      character = (character & 0x1f) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f);
    }
    if (character >= kAlphabetEnd || kInverse[character] < 0) return std::string(text);
    bytes += static_cast<char>(kInverse[character]);
  }
  return bytes;
}

std::string alphabet_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_character(text, kAlphabet[static_cast<unsigned char>(byte)]);
  return text;
}

}  // namespace kvsim::model
