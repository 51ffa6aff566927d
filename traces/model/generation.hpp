#pragma once
/// Generation: reads a prompt in passes, then one token at a time, chosen or given.
#include <cstdint>
#include <span>
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
  /// All tokens that follow the prompt in place of chosen ones (teacher forcing); empty: choose.
  std::vector<std::int32_t> given;
  bool prompt_logprobs = false;  ///< computes logits of every prompt token
};

struct Generation {
  std::vector<std::int32_t> tokens;  ///< prompt and generated, all processed, including the last
  /// Of each token after the prompt, chosen or given; with GenerationOptions::prompt_logprobs also of the
  /// prompt's but for the first, else NaN.
  std::vector<float> logprob;
  std::vector<trace::Pass> passes;       ///< segment 0: prompt, 1: generated
  std::vector<float> layer_ns, attn_ns;  ///< [passes][layers]
};

/// Writes into `logprob` what the latest pass, of tokens [first, first + n) of `text`, says of those among
/// the next ones that `logprob` is long enough for.
void note_logprobs(ModelRun& run, std::span<const std::int32_t> text, std::uint64_t first, std::uint64_t n,
                   std::span<float> logprob);

/// Runs the prompt and generates tokens. `run` must be new, with capacity for the prompt and the new tokens.
/// Passes run ahead of the observer, which has received everything when this returns, and receives nothing
/// after an exception. Throws Error(input) when logits are not finite, Error(interrupted) between passes.
Generation generate(ModelRun& run, const std::vector<std::int32_t>& prompt, const GenerationOptions& options,
                    RunObserver& observer, Progress& progress);

}  // namespace kvsim::model
