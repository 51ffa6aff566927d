#pragma once
/// Byte-level vocabularies (Radford et al. 2019) write each byte as one printable character: itself where it
/// is printable, else one of the characters from U+0100 on.
#include <string>
#include <string_view>

namespace kvsim::model {

/// Translates text in that alphabet back; text that is not in it stays as it is.
std::string bytes_of_alphabet(std::string_view text);
/// And forth.
std::string alphabet_of_bytes(std::string_view bytes);

}  // namespace kvsim::model
