#pragma once
/// Peaks: rows in which one far key holds much of the attention. Such rows are what seems to carry answers,
/// so attention on peaks that falls on dropped keys (peak loss) stands in for evidence where no token is
/// marked as such.
///
/// Of one query head's row over the keys before it, keys [sinks, P - recent) are far. The row counts if its
/// best far key holds at least `threshold` of the whole row; of its far keys count those with at least
/// `share` of the best. Peak loss is dropped over all counted attention, over all query heads and measured
/// steps.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::sim {

struct PeakRule {
  double threshold = 0.5;   ///< in (0, 1]
  double low = 0.3;         ///< threshold of the relative that counts more rows, at most `threshold`
  double share = 0.5;       ///< in (0, 1]
  std::size_t sinks = 4;    ///< first positions, which are not far
  std::size_t recent = 32;  ///< last positions before the cut, which are not far
  std::string text = "threshold=0.5,low=0.3,share=0.5,sinks=4,recent=32";  ///< canonical
};

/// "threshold=0.5,sinks=4"; what is left out is the default. Throws Error(usage).
PeakRule parse_peak(std::string_view text);

/// The peak of one row.
struct Peak {
  double best = 0;                          ///< attention of its best far key
  double paid = 0;                          ///< of all that count
  std::vector<policy::Position> positions;  ///< those that count; empty if `best` is below the rule's `low`
};

/// Of a row of a query head over positions 0 .. row.size() - 1, of a sequence whose prompt has `prompt`
/// tokens.
void find_peak(const PeakRule& rule, std::span<const float> row, std::size_t prompt, Peak& out);

}  // namespace kvsim::sim
