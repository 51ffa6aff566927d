#pragma once
/// Makes prompts of a kind, fitted to a length in a tokenizer's tokens.
#include "traces/workloads/prompt_item.hpp"
#include "traces/workloads/task.hpp"

namespace kvsim::workload {

/// Number of tokens of a text, with those that the tokenizer puts around it. It is nearly monotone: a longer
/// text may have a few tokens fewer.
using TokenCount = std::function<std::uint64_t(const SpannedText&)>;

struct WorkloadOptions {
  std::uint64_t context_tokens = 0;  ///< of the whole prompt, at most kMaxContextTokens
  std::uint64_t count = 1;           ///< number of prompts
  std::uint64_t seed = 1;
  TaskOptions task;
};
constexpr std::uint64_t kMaxContextTokens = 1ULL << 22;

/// Calls `emit` with prompts 0, 1, ... in order. The same options and tokenizer give the same prompts. Prompt
/// i does not depend on `count`, nor does its task depend on `context_tokens`. No prompt exceeds
/// context_tokens, and one more word would not fit. Throws Error(usage) when the task does not fit or an
/// option is out of range.
void make_workload(const Kind& kind, const WorkloadOptions& options, const TokenCount& count_tokens,
                   const std::function<void(const PromptItem&)>& emit);

}  // namespace kvsim::workload
