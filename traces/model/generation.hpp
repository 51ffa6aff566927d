#pragma once
/// A prompt read in passes, then one token at a time, chosen or given.
#include <cstdint>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/header.hpp"
#include "traces/model/model_run.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::model {

struct GenerationOptions {
  std::uint64_t max_new_tokens = 0;
  std::uint64_t prefill_chunk = 512;  ///< prompt tokens per pass
  std::vector<std::int32_t> eos;      ///< generation ends after one of these
  Sampling sampling;
  /// Tokens to go on with instead of choosing, all of them (teacher forcing); empty: choose.
  std::vector<std::int32_t> given;
};

struct Generation {
  std::vector<std::int32_t> tokens;  ///< prompt and generated; all of them were processed, the last one too
  std::vector<float> logprob;       ///< of each token after the prompt, chosen or given; NaN for the prompt's
  std::vector<trace::Pass> passes;  ///< segment 0: prompt, 1: generated
  std::vector<float> layer_ns, attn_ns;  ///< [passes][layers]
};

/// `run` must be fresh and hold prompt and new tokens. Throws Error(input) when logits are not finite,
/// Error(interrupted) between passes.
Generation generate(ModelRun& run, const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                    RunObserver& observer, Progress& progress);

}  // namespace kvsim::model
