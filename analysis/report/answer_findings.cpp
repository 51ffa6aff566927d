#include "analysis/report/answer_findings.hpp"

#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"

namespace kvsim::analysis {
namespace {

/// Place of attention loss among AnswerEvidence::open_measures().
constexpr std::size_t kLoss = 0;

std::string mean_text(const Metric& metric, const PolicyMean& mean) {
  return value_text(metric, mean.mean) + " (" + interval_text(metric, mean.low, mean.high) + ")";
}

/// How far the pick is behind the best, with the interval of the paired difference.
std::string behind_text(const AnswerEvidence& answers, const std::string& budget, const PolicyMean& pick,
                        const PolicyMean& best) {
  const Metric& metric = *answers.metric();
  const auto behind =
      answers.statistics().difference({metric.key, kAllWorkloads, budget}, pick.params, best.params);
  std::string text =
      difference_text(metric, pick.mean - best.mean) + (metric.better == Better::higher ? " less" : " more");
  if (!behind) return text;
  if (!behind->low || !behind->high) return text + ", with too few items for an interval";
  text += " (" + difference_interval_text(metric, *behind->low, *behind->high) + ")";
  return behind->distinguishable() ? text : text + ", not distinguishable";
}

}  // namespace

Findings picked_by_loss(const AnswerEvidence& answers) {
  if (answers.metric() == nullptr) return {};
  const Metric &metric = *answers.metric(), &loss = *AnswerEvidence::open_measures()[kLoss];
  Finding finding;
  std::vector<std::string> apart, alike;
  for (const std::string& budget : answers.statistics().budgets()) {
    const std::vector<AnsweredPolicy>& all = answers.policies(budget);
    const AnsweredPolicy* pick = nullptr;
    std::size_t with_loss = 0;
    for (std::size_t i = 0; i < answers.compared(budget); ++i) {
      if (!all[i].open[kLoss]) continue;
      ++with_loss;
      if (pick == nullptr || *all[i].open[kLoss] < *pick->open[kLoss]) pick = &all[i];
    }
    if (with_loss < 2) continue;
    const AnsweredPolicy& best = all.front();
    if (pick->leading.mean == best.leading.mean) {
      alike.push_back(budget_text(budget));
      continue;
    }
    apart.push_back(budget_text(budget));
    std::string text = budget_text(budget) + ": the least attention is lost by " +
                       quoted_name(pick->leading.policy) + ", " + value_text(loss, *pick->open[kLoss]) +
                       "; its " + metric.label + " is " + mean_text(metric, pick->leading) + ". " +
                       quoted_name(best.leading.policy) + " has " + mean_text(metric, best.leading);
    if (best.open[kLoss]) text += " and loses " + value_text(loss, *best.open[kLoss]) + " of attention";
    finding.details.push_back(text + ". The pick has " +
                              behind_text(answers, budget, pick->leading, best.leading) + '.');
  }
  if (apart.empty() && alike.empty()) return {};
  if (apart.empty())
    finding.text =
        "At every studied budget the policy that loses least attention is also among the best by " +
        std::string(metric.label) + '.';
  else
    finding.text = "Attention loss alone would have picked another policy than " + std::string(metric.label) +
                   " at " + listed(apart) +
                   (alike.empty() ? "." : ", and one of the best at " + listed(alike) + '.');
  return {finding};
}

Findings what_answers_say(const AnswerEvidence& answers, const PriceList& prices) {
  if (answers.metric() == nullptr) return {};
  Findings out = best_policies(answers.statistics(), *answers.metric(), prices);
  for (Finding& finding : picked_by_loss(answers)) out.push_back(std::move(finding));
  return out;
}

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
