#pragma once
/// How well a replay's numbers order policies as the answers of a running model do.
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/agreement/judged_policies.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/full_cache_gate.hpp"

namespace kvsim::analysis {

struct AgreementOptions {
  std::vector<std::string> closed{"right", "kl", "same_top", "log_p"};  ///< measures that tables show
  /// A workload is ranked at a cut where the full cache answers at least this share of its items; 0: always.
  double least_full = kLeastFull;
  /// An accuracy of at least this share of the full cache's is kept.
  double kept = 0.9;
  /// Of the cells within a threshold, the share that must keep their accuracy on the half that chooses it.
  double trusted = 0.95;
  std::uint64_t resamples = 2000, seed = 0;  ///< of items: 100 to 100000
  double confidence = 0.95;                  ///< of intervals: 0.5 to 0.999
};

/// Rows by workload, cut and budget: no number is pooled over any of them, but for what a half of the items
/// chooses, which is chosen over budgets and reported at each. Definitions: analysis/README.md.
struct LoopAgreement {
  Records agreement;   ///< a row per budget, open and closed measure: tau-b and signs, over all items
  Records choices;     ///< the open measure that one half of the items chooses, on the other half
  Records thresholds;  ///< the value up to which accuracy is kept, chosen and reported alike
  std::vector<std::string> notes;
};

/// `loops` are joined by all of closed_measures(). Throws Error(usage) for options out of range, and an
/// unknown measure with the nearest names.
LoopAgreement loop_agreement(const JoinedLoops& loops, const AgreementOptions& options = {});

/// The tables without rows: their columns.
LoopAgreement empty_agreement();

}  // namespace kvsim::analysis
