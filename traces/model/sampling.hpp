#pragma once
/// Chooses the next token from the logits.
#include <cstdint>
#include <span>
#include <string>

namespace kvsim::model {

/// Temperature, then top-k, then top-p, each applied to the result of the step before:
///   1. p[i] = softmax(logits / temperature)[i], tokens in order of decreasing p, equals by ascending id.
///   2. The first top_k tokens are kept.
///   3. p is normalised to the kept tokens; of these, the fewest that hold at least top_p of it are kept
///      (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1).
///   4. One of them is drawn with probability proportional to p: the first whose cumulative p exceeds u times
///      the total, u = uniform01(combine({seed, key_of("sampling"), step})) (sim/base/rng.hpp).
/// All steps compute in double. Temperature 0 is greedy: the largest logit, the lowest id among equals;
/// nothing is drawn.
struct Sampling {
  double temperature = 0;   ///< finite, at least 0
  std::uint64_t top_k = 0;  ///< 0: all
  double top_p = 1;         ///< within (0, 1]
  std::uint64_t seed = 0;
};

/// Throws Error(usage) naming an option that is out of range, or a top-k, top-p or seed that greedy decoding
/// would ignore.
void check_sampling(const Sampling& sampling);

/// The text that a trace stores: "greedy", or "temperature 0.8, top-k 40, top-p 0.95".
std::string sampling_text(const Sampling& sampling);

/// The id chosen at a step. It does not depend on the number of threads or on other steps. Logits must be
/// finite.
std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t step);

/// Natural logarithms of the probabilities of the whole distribution, at temperature 1, without top-k or
/// top-p.
class LogProbabilities {
 public:
  explicit LogProbabilities(std::span<const float> logits);
  /// False when a logit is NaN or infinite.
  bool finite() const;
  float of(std::int32_t id) const;

 private:
  std::span<const float> logits_;
  double largest_ = 0, log_sum_ = 0;  // of the logits, and of exp(logit - largest)
};

}  // namespace kvsim::model
