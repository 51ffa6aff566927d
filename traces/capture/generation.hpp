#pragma once
/// A prompt read in passes, then greedy decoding one token at a time.
#include <cstdint>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/capture/model_run.hpp"
#include "traces/header.hpp"

namespace kvsim::capture {

struct GenerationOptions {
  std::uint64_t max_new_tokens = 0;
  std::uint64_t prefill_chunk = 512;  ///< prompt tokens per pass
  std::vector<std::int32_t> eos;      ///< generation ends after one of these
};

struct Generation {
  std::vector<std::int32_t> tokens;  ///< prompt and generated; all of them were processed, the last one too
  std::vector<float> logprob;        ///< of each generated token; NaN for the prompt's, which nobody chose
  std::vector<trace::Pass> passes;   ///< segment 0: prompt, 1: generated
  std::vector<float> layer_ns, attn_ns;  ///< [passes][layers]
};

/// Greedy: the most probable token, the lowest id among equals. `run` must be fresh and hold prompt and new
/// tokens. Throws Error(input) when logits are not finite, Error(interrupted) between passes.
Generation generate(ModelRun& run, const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                    RunObserver& observer, Progress& progress);

}  // namespace kvsim::capture
