#pragma once
/// Seconds of speculative decoding: a cache drafts tokens one by one, and the full one verifies them in a
/// single pass.
#include <cstdint>

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
  double tokens = 1;        ///< that come of a round
  double per_token = 0;     ///< s
  double speedup = 1;       ///< over the full cache alone
};

/// The fastest of 0 to `most` drafted tokens. `full`: how the model is served with the full cache, which
/// holds the prompt and half of what is generated; `draft`: s of a drafting step, of whatever model and
/// cache.
Drafting fastest_drafting(const Model& model, const Machine& machine, const Serving& full, double draft,
                          double acceptance, std::uint64_t most = 16);

}  // namespace kvsim::cost
