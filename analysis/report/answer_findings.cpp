#include "analysis/report/answer_findings.hpp"

#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"

namespace kvsim::analysis {
Findings failed_workloads(const std::vector<FullAnswers>& accuracies, double least_full) {
  Finding finding;
  std::vector<std::string> names;
  const Metric& right = answer_metric("right");
  for (const FullAnswers& each : accuracies) {
    if (each.share() >= least_full) continue;
    if (std::find(names.begin(), names.end(), each.workload) == names.end()) names.push_back(each.workload);
    finding.details.push_back(
        quoted_name(each.workload) + ", " + cut_title(each.cut) + ": the full cache answers " +
        std::to_string(each.right) + " of " + count_text(each.asked, "question") + " right, " +
        value_text(right, each.share()) + (each.enough_kept() ? "; accuracy kept is over those." : "."));
  }
  if (names.empty()) return {};
  finding.text = "Policies are not ranked by the answers to " + names_text(names) +
                 ", which the full cache itself answers right too seldom: less than " +
                 value_text(right, least_full) + " of the items.";
  return {finding};
}

}  // namespace kvsim::analysis
