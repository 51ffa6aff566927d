#pragma once
/// Tokens of single bytes, as vocabularies of characters name them: "<0x0A>".
#include <optional>
#include <string>
#include <string_view>

namespace kvsim::model {

/// Name of a byte's token.
std::string byte_token_text(unsigned char byte);
/// The byte that a token of that form names, upper or lower case.
std::optional<char> byte_of_token(std::string_view token);

}  // namespace kvsim::model
