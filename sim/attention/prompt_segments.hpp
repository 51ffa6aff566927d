#pragma once
/// What kinds of text a prompt is made of, as its trace says: each token is of one kind.
#include <array>
#include <cstdint>
#include <optional>

#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// In this order: a token with flags of several kinds is of the first of them.
enum class PromptSegment : std::uint8_t {
  special,    ///< begin of text and other control tokens
  context,    ///< what the question is about
  question,   ///< question or instruction
  template_,  ///< the rest of what was asked: chat markup, text that no flag covers
};
inline constexpr std::size_t kPromptSegments = 4;
/// Tokens of each kind.
using SegmentCounts = std::array<std::uint64_t, kPromptSegments>;

/// Nothing for generated tokens of earlier turns, and for all tokens of a trace that does not know which are
/// context and which question.
std::optional<PromptSegment> segment_of(const trace::Sequence& sequence, std::uint64_t position);

}  // namespace kvsim::sim
