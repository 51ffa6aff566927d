#pragma once
/// What comes of drafted tokens when the full cache verifies them: rejection sampling (Leviathan et al. 2023,
/// "Fast Inference from Transformers via Speculative Decoding", 2.3 and A.1; Chen et al. 2023, "Accelerating
/// Large Language Model Decoding with Speculative Sampling", algorithm 2). What comes out is distributed as
/// if the full cache had drawn every token itself; at temperature 0 it is what the full cache generates.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace kvsim::sim {

/// softmax(logits / temperature), in double. At temperature 0 it is 1 at the largest logit, the lowest id
/// among equals.
std::vector<double> probabilities(std::span<const float> logits, double temperature);

/// Sum of min(p, q): how probable it is that a token drawn from q is accepted where p is wanted.
double overlap(std::span<const double> p, std::span<const double> q);

/// The first id whose cumulative weight exceeds u times the total. `weights`: at least 0, one above it; `u`:
/// within [0, 1).
std::int32_t drawn(std::span<const double> weights, double u);

/// A token x that was drawn from q is accepted with probability min(1, r(x) / q(x)): nothing. Else what comes
/// in its place, drawn from max(p - q, p - r, 0). `r`: what stands for p in the test; empty: p itself does,
/// and what comes out is distributed as p. `draw`: uniform within [0, 1), anew at each call.
std::optional<std::int32_t> in_place_of(std::int32_t token, std::span<const double> p,
                                        std::span<const double> q, const std::function<double()>& draw,
                                        std::span<const double> r = {});

/// What stands for p where a draft knows more than the full cache (Chen et al. 2025, "RAPID", as its code has
/// it): softmax(logits / temperature - eta (p - q)), without the second term where q is below a tenth of its
/// largest. At eta 0 it is p; else what comes out of in_place_of() is distributed as neither.
std::vector<double> led_by(std::span<const double> q, std::span<const float> logits, double temperature,
                           double eta);

struct Verdict {
  std::size_t accepted = 0;  ///< drafted tokens, from the first on
  std::int32_t next = 0;     ///< the token behind them
};

/// Tokens are accepted until one is not (in_place_of()); behind the last, one is drawn from p. `q`: what each
/// token was drawn from; `p`: what the full cache would have drawn it from, and one more; `r`: none, or one
/// for each token.
Verdict verify_drafted(std::span<const std::int32_t> tokens, std::span<const std::vector<double>> p,
                       std::span<const std::vector<double>> q, const std::function<double()>& draw,
                       std::span<const std::vector<double>> r = {});

}  // namespace kvsim::sim
