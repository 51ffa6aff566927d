#pragma once
/// Paired differences between policies, as figures take them from the table of differences.
#include <map>

#include "analysis/figures/results_view.hpp"

namespace kvsim::analysis {

struct Difference {
  std::string policy;
  double value;
  std::optional<double> low, high;
  std::uint64_t traces;
};

/// Of all others to `best`, from these rows of the table of differences.
std::vector<Difference> differences_to(const std::string& best, const Records& table,
                                       const std::vector<std::size_t>& rows);

/// How much worse than the best policy of a budget another one is.
struct Gap {
  std::string budget;
  double value;
  std::optional<double> low, high;  ///< interval of the paired difference
};

/// By policy. The best has a gap of 0: it is the one of the best mean among the policies over the most traces
/// of the budget. Another one that could not run on all of these is compared on its own. Without a table of
/// differences gaps are those of the means, and have no interval.
std::map<std::string, std::vector<Gap>> gaps_to_best(const FigureTables& tables, const Metric& metric,
                                                     const FigureChoice& choice);

}  // namespace kvsim::analysis
