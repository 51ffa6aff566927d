#pragma once
/// Checks SentencePiece's compiled normalization rules: a double array (Aoe 1989, as darts-clone stores it)
/// that maps byte strings to offsets into a table of replacements.
#include <string>
#include <string_view>

namespace kvsim::model {

/// Throws Error(input) naming `where` unless every walk through the array stays within it, ends, passes at
/// most 32 rules (SentencePiece has room for no more) and leads to a replacement of at most 1024 bytes.
void check_charsmap(std::string_view map, const std::string& where);

}  // namespace kvsim::model
