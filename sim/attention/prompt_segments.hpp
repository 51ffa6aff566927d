#pragma once
/// The kinds of text that a prompt is made of, as its trace flags them. Each token is of one kind.
#include <array>
#include <cstdint>
#include <optional>

#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// In order of precedence: a token with the flags of several kinds is of the first of them.
enum class PromptSegment : std::uint8_t {
  special,    ///< begin of text and other control tokens
  context,    ///< what the question is about
  question,   ///< question or instruction
  template_,  ///< the rest of what was asked: chat markup, text that no flag covers
};
inline constexpr std::size_t kPromptSegments = 4;
/// The number of tokens of each kind.
using SegmentCounts = std::array<std::uint64_t, kPromptSegments>;

/// Returns the kind of the token at `position`. Generated tokens of earlier turns have none, nor has any
/// token of a trace that does not flag which tokens are context and which are question.
inline std::optional<PromptSegment> segment_of(const trace::Sequence& sequence, std::uint64_t position) {
  constexpr std::uint32_t kNeeded = trace::kFlagContext | trace::kFlagQuestion;
  if ((sequence.flags_known() & kNeeded) != kNeeded) return std::nullopt;
  const std::uint32_t flags = sequence.flags(position);
  if (flags & trace::kFlagGenerated) return std::nullopt;
  if (flags & trace::kFlagSpecial) return PromptSegment::special;
  if (flags & trace::kFlagContext) return PromptSegment::context;
  if (flags & trace::kFlagQuestion) return PromptSegment::question;
  return PromptSegment::template_;
}

}  // namespace kvsim::sim
