#pragma once
#include <string>
#include <string_view>

namespace kvsim::analysis {

/// `text` as a JSON string with its quotes. File names may hold any bytes: what is not UTF-8 becomes U+FFFD,
/// so the document stays one.
std::string json_string(std::string_view text);

/// Bytes of the well-formed UTF-8 character at the front of `text`, which is not empty (Unicode 15, table
/// 3-7); 0 when there is none.
std::size_t utf8_length(std::string_view text);

/// The text with U+FFFD for every byte that belongs to no character: tokens of a model may be parts of one.
std::string well_formed(std::string_view text);

}  // namespace kvsim::analysis
