#include "traces/model/tokenizers/byte_token.hpp"

#include <charconv>

namespace kvsim::model {

std::string byte_token_text(unsigned char byte) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + '>';
}

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned char byte = 0;
  const char* end = token.data() + 5;
  const auto [stop, failure] = std::from_chars(token.data() + 3, end, byte, 16);
  if (failure != std::errc{} || stop != end) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace kvsim::model
