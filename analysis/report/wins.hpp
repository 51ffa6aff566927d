#pragma once
/// The best policy at each budget, and against whom that can be said.
#include <optional>
#include <string>
#include <vector>

#include "analysis/report/evidence.hpp"

namespace kvsim::analysis {

struct Win {
  std::string budget;
  std::vector<PolicyMean> best;           ///< with equal means
  std::vector<PolicyMean> rivals;         ///< behind, but not distinguishable from the best
  std::optional<PolicyMean> next;         ///< the best of the others
  std::optional<PairedDifference> ahead;  ///< next - best

  bool clear() const { return best.size() == 1 && ahead && ahead->distinguishable(); }
};

/// One per budget where policies can be compared, smallest budget first, over all traces.
std::vector<Win> wins(const Evidence& evidence, const Metric& metric);

}  // namespace kvsim::analysis
