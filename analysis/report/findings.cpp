#include "analysis/report/findings.hpp"

#include <iterator>
#include <utility>

namespace kvsim::analysis {
namespace {

void append(Findings& all, Findings more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

Findings what_policies_do(const Evidence& evidence) {
  const Metric* metric = evidence.leading_metric();
  if (metric == nullptr) return {};
  Findings all = best_policies(evidence, *metric);
  append(all, sufficient_budget(evidence));
  append(all, room_left(evidence, *metric));
  append(all, stability(evidence, *metric));
  append(all, workloads_apart(evidence, *metric));
  append(all, against_baselines(evidence, *metric));
  return all;
}

Findings what_limits(const Evidence& evidence, const Records& results, const Records& skipped) {
  Findings all = open_loop(evidence);
  append(all, few_traces(evidence));
  append(all, unequal_lengths(evidence));
  append(all, beyond_budget(results));
  append(all, same_results(results));
  append(all, skipped_cells(skipped));
  return all;
}

}  // namespace kvsim::analysis
