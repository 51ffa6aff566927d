#pragma once
/// Text in lines that people read.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

/// How many characters a reader sees in well-formed UTF-8.
std::size_t characters(std::string_view text);

/// Lines of at most `limit` characters, broken at white space; a longer word stands alone.
std::vector<std::string> wrapped(const std::string& text, std::size_t limit);

/// The same as one text: each line ends, behind `indent` spaces that count towards the limit.
std::string wrapped_text(const std::string& text, std::size_t limit, std::size_t indent = 0);

}  // namespace kvsim
