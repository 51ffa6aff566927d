#pragma once
/// What limits what can be said of a study, in sentences computed from its tables.
#include <string>
#include <vector>

#include "analysis/report/evidence.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/full_cache_gate.hpp"

namespace kvsim::analysis {

struct Finding {
  std::string text;                    ///< names in `backquotes`
  std::vector<std::string> details{};  ///< the numbers behind it, a sentence each
};
using Findings = std::vector<Finding>;

// What limits what can be said.

/// Where so much attention is lost that a replay, which never lets the model drift, no longer tells what a
/// real run would do: retained mass below 0.9.
Findings open_loop(const Evidence& evidence);
/// A single trace; workloads with fewer than five.
Findings few_traces(const Evidence& evidence);
Findings unequal_lengths(const Evidence& evidence);
/// Policies that come to hold more than the budget: they compress the prompt only, evict in blocks, or spend
/// another total.
Findings beyond_budget(const Records& results);
/// Policies that held every token somewhere: those numbers are not their rule's.
Findings never_evicted(const Records& results);
/// Tokens before the context, which a policy knows at every cut.
Findings instruction_before(const Records& results);
/// Policies that agree in every row of the results.
Findings same_results(const Records& results);
/// Cells that were not run, by reason. `skipped`: columns policy, budget, analysis and reason.
Findings skipped_cells(const Records& skipped);

/// Workloads whose full cache answers less than `least_full` of the items, which rank no policy.
Findings failed_workloads(const std::vector<FullAnswers>& accuracies, double least_full);

/// All of the others. What holds at every cut is said once, anything else names its cut.
Findings what_limits(const std::vector<Evidence>& cuts, const Records& results, const Records& skipped);

}  // namespace kvsim::analysis
