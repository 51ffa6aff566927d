#pragma once
/// Finds peaks: rows in which one far key gets much of the attention. Such rows seem to carry answers, so the
/// attention of peaks that falls on evicted keys (peak loss) stands in for evidence loss where no token is
/// marked as evidence.
///
/// In the row of one query head, far keys are the keys [sinks, P - recent) that the row sees. The row counts
/// if its best far key gets at least `threshold` of the whole row; of its far keys, those count that get at
/// least `share` of what the best gets. Peak loss is the counted attention that falls on evicted keys over
/// all counted attention, over all query heads and measured steps.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/eviction.hpp"

namespace kvsim::sim {

struct PeakRule {
  double threshold = 0.5;   ///< in (0, 1]
  double low = 0.3;         ///< threshold of the variant that counts more rows; at most `threshold`
  double share = 0.5;       ///< in (0, 1]
  std::size_t sinks = 4;    ///< first positions, which are not far
  std::size_t recent = 32;  ///< last positions before the cut, which are not far
  std::string text = "threshold=0.5,low=0.3,share=0.5,sinks=4,recent=32";  ///< canonical
};

/// Parses "threshold=0.5,sinks=4"; a parameter that is left out has its default. Throws Error(usage).
PeakRule parse_peak(std::string_view text);

/// The peak of one row.
struct Peak {
  double best = 0;                          ///< attention on the best far key
  double paid = 0;                          ///< attention on all far keys that count
  std::vector<policy::Position> positions;  ///< far keys that count; empty if `best` is below PeakRule::low
};

/// Finds the peak of a query head's row over positions 0 .. row.size() - 1. `prompt` is the number of tokens
/// of the sequence's prompt.
void find_peak(const PeakRule& rule, std::span<const float> row, std::size_t prompt, Peak& out);

}  // namespace kvsim::sim
