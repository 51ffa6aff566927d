#pragma once
/// The best permanent eviction by trying every schedule: a reference for short runs of few tokens.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "tests/support/decoding_rows.hpp"

namespace kvsim::test {

/// Returns the most attention that can be retained, by trying every set of residents at every step.
inline double most_retained(const Decoding& run, std::size_t budget) {
  using Set = std::uint32_t;
  std::vector<double> best(std::size_t{1} << run.n_tokens(), 0.0), before;
  for (std::size_t s = run.n_steps; s-- > 0;) {
    // best[set]: most from step s on when `set` is what the step may choose from.
    before.assign(best.size(), 0.0);
    std::vector<double> attended(best.size(), -1.0);
    const Set own = Set{1} << (run.first() + s);
    const Set joins = run.first() + s < run.prompt ? 0 : own;
    for (Set set = 0; set < (own << 1); ++set) {
      if ((set & joins) != joins || static_cast<std::size_t>(std::popcount(set)) > budget) continue;
      double mass = 0;
      for (std::size_t j = 0; j <= run.first() + s; ++j)
        if (((set | own) >> j & 1) != 0) mass += static_cast<double>(run.at(s, j));
      attended[set] = mass + best[set];
    }
    for (Set choices = 0; choices < (own << 1); ++choices) {
      if ((choices & joins) != 0) continue;
      double most = -1;
      for (Set rest = choices;; rest = (rest - 1) & choices) {
        most = std::max(most, attended[rest | joins]);
        if (rest == 0) break;
      }
      before[choices] = most;
    }
    best = before;
  }
  return run.n_steps == 0 ? 0.0 : best[(std::size_t{1} << run.prompt) - 1];
}

}  // namespace kvsim::test
