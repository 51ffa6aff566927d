#pragma once
/// SentencePiece's compiled rules of normalization: a double array (Aoe 1989, as darts-clone stores it) that
/// leads from strings of bytes to offsets into a table of replacements.
#include <string>
#include <string_view>

namespace kvsim::model {

/// Throws Error(input) naming `where` unless every walk through the array stays within it, ends, passes at
/// most 32 rules (what SentencePiece has room for) and leads to a replacement of at most 1024 bytes.
void check_charsmap(std::string_view map, const std::string& where);

}  // namespace kvsim::model
