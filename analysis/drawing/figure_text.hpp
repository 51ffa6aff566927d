#pragma once
/// Text of figures: names come from files and may hold anything.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::analysis {

/// One line of well-formed UTF-8 that XML may hold: control characters become spaces, broken ones U+FFFD.
std::string one_line(std::string_view text);

/// The first letter in upper case, if it is one of a to z.
std::string capitalised(std::string text);

/// How many characters a reader sees in well-formed UTF-8.
std::size_t characters(std::string_view text);

/// At most `limit` characters: the middle gives way to "…", for names differ at their ends.
std::string shortened(const std::string& text, std::size_t limit);

/// Lines of at most `limit` characters, broken between words; a longer word stands alone.
std::vector<std::string> wrapped(const std::string& text, std::size_t limit);

}  // namespace kvsim::analysis
