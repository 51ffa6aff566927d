#pragma once
/// Seconds of speculative decoding: a cache drafts tokens one by one, and the full one verifies them in a
/// single pass.
#include <cstdint>
#include <functional>

#include "sim/cost/latency.hpp"

namespace kvsim::cost {

/// Tokens that come of a verification in the mean, where each of `gamma` drafted ones is accepted with
/// probability `acceptance`, whatever came before: 1 + a + ... + a^gamma (Leviathan et al. 2023, "Fast
/// Inference from Transformers via Speculative Decoding", equation 1). Accepted runs are not independent:
/// what kvsim evaluate --mode draft counts is the truth.
double tokens_of_round(double acceptance, std::uint64_t gamma);

struct Drafting {
  std::uint64_t gamma = 0;  ///< drafted tokens of the fastest round; 0: not drafting is
  double draft = 0;         ///< s of a drafting step
  double verify = 0;        ///< s of the pass that verifies them, one token more
  double calibrate = 0;     ///< s of a pass of what drafts over what was accepted
  double tokens = 1;        ///< that come of a round
  double per_token = 0;     ///< s
  double speedup = 1;       ///< over what is compared with, alone
};

/// What a round is made of, in seconds.
struct Round {
  double draft = 0;                                     ///< of a step, of whatever model and cache
  std::function<double(std::uint64_t gamma)> verify{};  ///< of the pass that verifies so many drafted tokens
  std::function<double(double tokens)> calibrate{};     ///< after so many came of a round; null: nothing is
  double alone = 0;                                     ///< of a token of what speed-ups are over
};

/// The fastest of 0 to `most` drafted tokens. Of a hierarchy (Sun et al. 2024, TriForce) the inner level is a
/// round whose verifier is the outer one's draft: its seconds per token are the outer draft's.
Drafting fastest_drafting(const Round& round, double acceptance, std::uint64_t most = 16);
/// The same where the full cache verifies. `full`: how the model is served with it; it holds the prompt and
/// half of what is generated.
Drafting fastest_drafting(const Model& model, const Machine& machine, const Serving& full, double draft,
                          double acceptance, std::uint64_t most = 16);

/// Returns the seconds of `step`, a decode step of one device, where the attention of `parallel` layers is
/// computed at once on as many devices (Wu et al. 2025, EasySpec): the first and the last layer alone, the
/// others in groups, each of which ends in an exchange of its outputs; everything else stays in sequence.
/// Throws Error(usage) for a model whose layers are not all of one attention and one MLP.
double layer_parallel_time(const Model& model, const Machine& machine, const Serving& serving,
                           const PassTime& step, std::uint64_t parallel);

}  // namespace kvsim::cost
