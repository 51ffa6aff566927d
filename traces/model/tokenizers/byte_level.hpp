#pragma once
/// Byte-level vocabularies (Radford et al. 2019) write each byte as one printable character: the byte's own
/// character if it is printable, else one of the characters from U+0100 on.
#include <string>
#include <string_view>

namespace kvsim::model {

/// Translates text of that alphabet to bytes; leaves any other text unchanged.
std::string bytes_of_alphabet(std::string_view text);
/// Translates bytes to text of that alphabet.
std::string alphabet_of_bytes(std::string_view bytes);

}  // namespace kvsim::model
