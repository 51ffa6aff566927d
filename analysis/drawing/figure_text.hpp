#pragma once
/// Text of figures: names come from files and may hold anything.
#include <string>
#include <string_view>

#include "sim/base/wrapped_text.hpp"

namespace kvsim::analysis {

/// One line of well-formed UTF-8 that XML may hold: control characters become spaces, broken ones U+FFFD.
std::string one_line(std::string_view text);

/// The first letter in upper case, if it is one of a to z.
std::string capitalised(std::string text);

/// At most `limit` characters: the middle gives way to "…", for names differ at their ends.
std::string shortened(const std::string& text, std::size_t limit);

}  // namespace kvsim::analysis
