#include "sim/attention/prompt_segments.hpp"

namespace kvsim::sim {

std::optional<PromptSegment> segment_of(const trace::Sequence& sequence, std::uint64_t position) {
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
