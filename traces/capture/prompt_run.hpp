#pragma once
/// Runs a prompt once, and an answer to it, and keeps their queries, keys and values in memory: what policies
/// rank before they answer, and what a replay needs to say what they lose of the full cache's run.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/capture/prompt.hpp"
#include "traces/format/memory_trace.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::capture {

struct PromptRunOptions {
  std::string model_dir;
  Elem elem = Elem::f32;              ///< of the cache
  std::uint64_t positions = 0;        ///< that the run will reach, the answer included
  std::uint64_t prefill_chunk = 512;  ///< prompt tokens per pass: with capture's, the same bits as capture's
  unsigned threads = 0;
  bool output_weights = false;  ///< the trace holds the output projections, too
  /// And the log probability of every token but the first; with `known`, that of the answer's first token is
  /// not known.
  bool logprobs = false;
  /// Tokens that are fed after the prompt, one by one, as capture feeds given tokens.
  std::vector<std::int32_t> answer{};
  /// A run of the same prompt with the same options, whatever the answer: the prompt is not processed again.
  const trace::MemoryTrace* known = nullptr;
};

/// A trace of the prompt, and of the answer's steps, on the processor. Throws Error(usage) when the cache
/// does not fit into memory, Error(interrupted) between passes. Advances `progress` by the tokens.
trace::MemoryTrace run_prompt(const Prompt& prompt, const model::ModelConfig& config,
                              const model::Weights& weights, const PromptRunOptions& options,
                              Progress& progress);

}  // namespace kvsim::capture
