#pragma once
/// Runs a prompt once and keeps its queries, keys and values in memory: what policies rank before they
/// answer.
#include <cstdint>
#include <string>

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
};

/// A trace of the prompt alone, on the processor. Throws Error(usage) when the cache does not fit into
/// memory, Error(interrupted) between passes. Advances `progress` by the prompt's tokens.
trace::MemoryTrace run_prompt(const Prompt& prompt, const model::ModelConfig& config,
                              const model::Weights& weights, const PromptRunOptions& options,
                              Progress& progress);

}  // namespace kvsim::capture
