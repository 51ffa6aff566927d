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

// Copies a trace with other token flags, for knowledge about its tokens that comes after the run.

/// Writes a copy of the trace `original` to `path` with `token_flags` [n_tokens], of which the bits
/// `flags_known` are meaningful. `original` is not changed. Digests do not cover the flags, so they stay the
/// same. Throws Error(usage) when `path` exists and may not be replaced, Error(input) when `original` is not
/// a sound trace or `path` cannot be written.
void write_marked_copy(const std::string& original, const std::string& path,
                       const std::vector<std::uint32_t>& token_flags, std::uint32_t flags_known,
                       bool overwrite = false);

}  // namespace kvsim::trace
