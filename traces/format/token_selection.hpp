#pragma once
/// Selects tokens of a trace by their numbers or by the text that they spell.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/format/header.hpp"

namespace kvsim::trace {

/// As an occurrence: all occurrences.
inline constexpr std::uint64_t kEveryOccurrence = 0;

/// The prompt tokens that `said` selects, ascending, in file order.
///
/// Digits, colons and commas alone are token numbers: `300` is one token, `120:135` are the tokens 120 to
/// 134, and commas join several. Anything else is text, and so is everything after `text:`. Text is compared
/// byte by byte with the text that the trace stores along every path of its segments, answers aside, and
/// selects each token that spells a part of it. Text that occurs in several places needs `occurrence`: the
/// number of one occurrence, counted from 1, or kEveryOccurrence.
///
/// Messages name `where`. Throws Error(usage) for text that does not occur, occurs more than once and no
/// occurrence is given, or has fewer occurrences than the number given; for text if the trace stores none;
/// for numbers that are not tokens of the prompt.
std::vector<std::uint64_t> select_tokens(const Header& header, const std::string& said,
                                         std::optional<std::uint64_t> occurrence, const std::string& where);

}  // namespace kvsim::trace
