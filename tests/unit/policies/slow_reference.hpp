#pragma once
/// Eviction straight from its definition, without state between steps: every score is computed again from all
/// rows attended so far, and positions are evicted one by one, lowest first.
#include <functional>
#include <set>

#include "tests/unit/policies/policy_feeder.hpp"

namespace kvsim::policy::test {

/// Positions that each query attended: all earlier ones in the prompt, the resident set afterwards.
using Attended = std::vector<std::set<Position>>;

struct SlowRule {
  /// Returns the score of `position` after the last query of `attended`.
  std::function<double(const Run&, const Attended&, Position)> score;
  std::size_t sinks = 0, window = 0;
  bool drop_newest_of_equals = false;
  bool decodes = true;   ///< false: generated tokens are appended
  bool streams = false;  ///< the prompt's tokens arrive one by one, too
};

/// Reduces `held` to `size` positions after the last query of `attended`; `newest` is the
/// last position that is or is about to be resident.
using Cut = std::function<void(const Attended& attended, std::set<Position>& held, std::size_t size,
                               Position newest)>;
/// Cuts the prompt once it ends, then cuts once before each token that finds no room: for rules that are more
/// than a score.
Fed feed_cutting(const Cut& cut, const Run& run, std::size_t budget);

Fed feed_slowly(const SlowRule& rule, const Run& run, std::size_t budget);

/// p(j) of query `query` over the set it attended, each query head's row divided by its sum there, mean over
/// heads.
double renormalised(const Run& run, const Attended& attended, std::size_t query, Position j);
/// p(j) of `query`, mean over query heads.
double mean_row(const Run& run, std::size_t query, Position j);

}  // namespace kvsim::policy::test
