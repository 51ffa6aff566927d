#pragma once
/// Tokens of single bytes in character vocabularies, such as "<0x0A>".
#include <optional>
#include <string>
#include <string_view>

namespace kvsim::model {

/// Text of a byte's token.
std::string byte_token_text(unsigned char byte);
/// The byte that a token of that form names, with upper or lower case digits.
std::optional<char> byte_of_token(std::string_view token);

}  // namespace kvsim::model
