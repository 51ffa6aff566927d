#pragma once
/// Who goes on among settings that answered the same prompts: a race (Maron and Moore 1997, The Racing
/// Algorithm: Model Selection for Lazy Learners) whose rounds also halve the field (Jamieson and Talwalkar
/// 2016, Non-stochastic Best Arm Identification and Hyperparameter Optimization, AISTATS).
#include <cstddef>
#include <optional>
#include <vector>

namespace kvsim::analysis {

/// What a setting answered to one prompt.
struct Answered {
  /// Whether it is right where the full cache is; none: the full cache is wrong, or no answer is right or
  /// wrong.
  std::optional<bool> kept{};
  double kl = 0;  ///< KL(full || setting), mean over the answer's tokens, nats
};

/// Means over prompts.
struct Standing {
  std::optional<double> kept{};  ///< share; none: nothing was judged
  double kl = 0;
};
Standing standing(const std::vector<Answered>& answers);

/// Numbers of settings, best first: by what they keep, then by KL, then in their own order. All answered the
/// same prompts.
std::vector<std::size_t> best_first(const std::vector<std::vector<Answered>>& settings);

/// Of those numbers the first, and of the others those that are not surely worse than it, at most `most` in
/// all. Surely worse is who loses more in 95 % of the resamples of the prompts, paired with the first:
/// answers where any was judged, else KL. With fewer than two prompts nobody is.
std::vector<std::size_t> survivors(const std::vector<std::vector<Answered>>& settings, std::size_t most);

}  // namespace kvsim::analysis
