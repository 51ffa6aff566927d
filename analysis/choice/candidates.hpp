#pragma once
/// The settings that a choice is made among, and which of those that answered the same prompts go on.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/asked/asked_cells.hpp"

namespace kvsim::analysis {

/// `count` different compositions, fewer if that many cannot be found: a pure function of the registry, the
/// seed and whether there is a model that can make a `second_pass`. The first round is of every eviction
/// alone and by its defaults, but for `full`, which always has a representation, and of every published
/// system that reads all that it stores, in an order of chance. In later rounds evictions come in turns, each
/// by a place of its own in every round: with an allocation in one case of three, a representation in one of
/// two, and of every four numbers and choices one is another than by default (drawn_value()). Left out is
/// what knows the future or needs a file, what stores a layer with another, and what fits values to queries,
/// which takes longer than all others together.
std::vector<AskedPolicy> draw_settings(const policy::Registry& registry, std::size_t count,
                                       std::uint64_t seed, bool second_pass);

/// Half of so many prompts searches, the others confirm, as drawn before anything is looked at.
struct Split {
  std::vector<std::size_t> search, confirm;
};
Split split_by_chance(std::size_t prompts, std::uint64_t seed);

/// A legal value of a parameter, as typed: of a count or a real number a quarter, half, twice or four times
/// the default; of a share half of it or the middle between it and 1; of choices and flags any. The default
/// where there is no other. `key`: of the draw (sim/base/rng.hpp).
std::string drawn_value(const ParamSpec& spec, std::uint64_t key);

// Who goes on among settings that answered the same prompts: a race (Maron and Moore 1997, The Racing
// Algorithm: Model Selection for Lazy Learners) whose rounds also halve the field (Jamieson and Talwalkar
// 2016, Non-stochastic Best Arm Identification and Hyperparameter Optimization, AISTATS).

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
