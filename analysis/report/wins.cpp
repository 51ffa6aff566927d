#include "analysis/report/wins.hpp"

namespace kvsim::analysis {
namespace {

Win win_at(const Evidence& evidence, const Metric& metric, const std::string& budget) {
  const Question question{metric.key, kAllWorkloads, budget};
  const std::vector<PolicyMean> all = contest(evidence, question, metric);
  Win win{budget, {}, {}, {}, {}};
  for (const PolicyMean& each : all) {
    if (each.mean == all.front().mean) {
      win.best.push_back(each);
      continue;
    }
    const auto behind = evidence.difference(question, each.params, win.best.front().params);
    if (!win.next) {
      win.next = each;
      win.ahead = behind;
    }
    if (!behind || !behind->distinguishable()) win.rivals.push_back(each);
  }
  return win;
}

}  // namespace

std::vector<Win> wins(const Evidence& evidence, const Metric& metric) {
  std::vector<Win> out;
  for (const std::string& budget : evidence.budgets()) {
    Win win = win_at(evidence, metric, budget);
    if (!win.best.empty()) out.push_back(std::move(win));
  }
  return out;
}

}  // namespace kvsim::analysis
