#pragma once
/// What a study found, in sentences computed from its tables. A sentence claims what the intervals carry and
/// no more: a paired difference whose interval includes zero is "not distinguishable", one trace ranks
/// nothing, means over other traces are not compared.
#include <string>
#include <vector>

#include "analysis/report/evidence.hpp"
#include "analysis/report/price_list.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

struct Finding {
  std::string text;                    ///< names in `backquotes`
  std::vector<std::string> details{};  ///< the numbers behind it, a sentence each
};
using Findings = std::vector<Finding>;

// What policies do. Each rule gives nothing when its tables say nothing about it.

/// The best policy per budget, whether the next is distinguishable, how many are not, and what it takes to
/// serve it, as far as `prices` knows.
Findings best_policies(const Evidence& evidence, const Metric& metric, const PriceList& prices = {});
/// How far the best policy is from oracles that aim at the metric and from the best set of the size.
Findings room_left(const Evidence& evidence, const Metric& metric);
/// Whether traces agree on the order (Kendall's W), and the interval of the best policy's rank.
Findings stability(const Evidence& evidence, const Metric& metric);
/// Workloads in which another policy is distinguishably better than the one that is best over all.
Findings workloads_apart(const Evidence& evidence, const Metric& metric);
/// The smallest studied budget at which a policy loses less than 5 % of attention.
Findings sufficient_budget(const Evidence& evidence);
/// What is not better than dropping at random, or than a sliding window.
Findings against_baselines(const Evidence& evidence, const Metric& metric);

/// Whether policies stand in another order where the prompt is cut elsewhere: Kendall's tau between the
/// orders at the first cut and at each other one, by budget.
Findings orders_between_cuts(const std::vector<Evidence>& cuts, const Metric& metric);

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

/// Every rule of the first kind at one cut, the most telling first: by the leading metric, and by attention
/// loss too where evidence leads.
Findings what_policies_do(const Evidence& evidence, const PriceList& prices = {});
/// What differs between cuts, by the same metrics; nothing if there is one.
Findings what_cuts_do(const std::vector<Evidence>& cuts);
/// Every rule of the second kind. What holds at every cut is said once, anything else names its cut.
Findings what_limits(const std::vector<Evidence>& cuts, const Records& results, const Records& skipped);

}  // namespace kvsim::analysis
