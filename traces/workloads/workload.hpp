#pragma once
/// Prompts of a kind, fitted to a length in some tokenizer's tokens.
#include "traces/workloads/prompt_item.hpp"
#include "traces/workloads/task.hpp"

namespace kvsim::workload {

/// Tokens of a text, with those a tokenizer puts around it. Nearly monotone: a longer text may have a few
/// tokens less.
using TokenCount = std::function<std::uint64_t(std::string_view)>;

struct WorkloadOptions {
  std::uint64_t context_tokens = 0;  ///< of the whole prompt, at most kMaxContextTokens
  std::uint64_t count = 1;           ///< prompts
  std::uint64_t seed = 1;
  TaskOptions task;
};
constexpr std::uint64_t kMaxContextTokens = 1ULL << 22;

/// Calls `emit` with prompts 0, 1, ... in order: same options and tokenizer, same prompts. Prompt i does not
/// depend on `count`, nor its task on `context_tokens`. No prompt exceeds context_tokens; what is missing is
/// less than the next word. Throws Error(usage) when the task does not fit or an option is out of its range.
void make_workload(const Kind& kind, const WorkloadOptions& options, const TokenCount& count_tokens,
                   const std::function<void(const PromptItem&)>& emit);

}  // namespace kvsim::workload
