#pragma once
/// Which tokens of a trace are meant: said by their numbers, or by the text they spell.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/format/header.hpp"

namespace kvsim::trace {

/// In place of the number of an occurrence: all of them.
inline constexpr std::uint64_t kEveryOccurrence = 0;

/// The prompt's tokens that `said` means, ascending, in file order.
///
/// Digits, colons and commas alone are token numbers: `300` is one token, `120:135` are the tokens 120 to
/// 134, and commas join several. All else is text, and so is what follows `text:`. Text is compared byte by
/// byte with what the trace stores along every path of its segments, answers aside, and means each token that
/// spells a part of it. Text that is found in several places needs `occurrence`, the number of one of them
/// from 1, or kEveryOccurrence.
///
/// `where` is what messages name. Throws Error(usage) for text that is not there, is there more than once
/// without an occurrence, or has fewer occurrences; for text of a trace that stores none; for numbers that
/// are no tokens of the prompt.
std::vector<std::uint64_t> select_tokens(const Header& header, const std::string& said,
                                         std::optional<std::uint64_t> occurrence, const std::string& where);

}  // namespace kvsim::trace
