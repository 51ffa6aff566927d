// A measure of the replay against the answers of the running model: do both loops see the same order?
#include <algorithm>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/agreement/judged_policies.hpp"
#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "analysis/statistics/trace_values.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

/// Both loops at the cut of the tables; nothing where no row joins.
std::optional<LoopsAtCut> joined_at(const FigureTables& tables, const Records& answers,
                                    const Metric& metric) {
  try {
    JoinedLoops joined = join_loops({tables.results, answers}, {&metric}, {&closed_measure("right")});
    if (!joined.cuts.empty()) return std::move(joined.cuts.front());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
  }
  return {};
}

/// A measure of the replay, and answers, at one budget of what the policies have shared there.
struct AtBudget {
  const LoopsAtCut& loops;
  Shared shared;
  std::size_t budget;

  double open(std::size_t policy) const { return mean_over(shared.items, loops.of_open(0, budget, policy)); }
  double right(std::size_t policy) const {
    return mean_over(shared.items, loops.of_closed(0, budget, policy));
  }
};

/// Which policies have a colour: those chosen, else the four with the most right answers, on average over the
/// budgets that they run at, and well-known ones.
std::vector<std::string> named_policies(const LoopsAtCut& loops, const std::vector<AtBudget>& budgets,
                                        const FigureChoice& choice) {
  std::vector<std::string> known;
  std::vector<std::pair<double, std::string>> ranking;
  for (std::size_t policy = 0; policy < loops.policies.size(); ++policy) {
    known.push_back(loops.policies[policy].label);
    RunningMean right;
    for (const AtBudget& at : budgets)
      if (std::ranges::count(at.shared.policies, policy) > 0) right.add(at.right(policy));
    if (right.value()) ranking.emplace_back(-*right.value(), known.back());
  }
  for (const std::string& wanted : choice.policies) known_name(wanted, known, "--policy");
  if (!choice.policies.empty()) return choice.policies;
  std::ranges::stable_sort(ranking, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> named;
  for (const auto& [_, label] : ranking)
    if (named.size() < 4 || well_known_policies().contains(label) || ranking.size() <= 8)
      named.push_back(label);
  return named;
}

/// Policies at a budget as dots: the measure's mean and the share of right answers.
Chart chart_of(const AtBudget& at, const Metric& metric, const std::vector<std::string>& named) {
  Chart chart{.x = metric_axis(metric), .joined = false};
  chart.y = {.label = "right answers", .low = 0, .high = 1, .percent = true};
  std::vector<double> full;
  for (const LoopsAtCut::Item& item : at.loops.items) full.push_back(item.right_full);
  chart.y.line = mean_over(at.shared.items, full);
  chart.y.line_label = "full cache";
  Series others{.label = "other policies", .weight = Weight::faint, .group = "other policies"};
  for (const std::size_t policy : at.shared.policies) {
    const std::string& label = at.loops.policies[policy].label;
    const Point dot{at.open(policy), at.right(policy), {}, {}};
    if (place_in(named, label) >= 0)
      chart.series.push_back({.label = label, .points = {dot}, .policy = label});
    else
      others.points.push_back(dot);
  }
  std::ranges::stable_sort(chart.series, [&](const Series& a, const Series& b) {
    return place_in(named, a.label) < place_in(named, b.label);
  });
  if (!others.points.empty()) chart.series.insert(chart.series.begin(), std::move(others));
  return chart;
}

/// "20%: tau 0.53".
std::string title_of(const AtBudget& at, const Metric& metric) {
  std::vector<double> open, closed;
  for (const std::size_t policy : at.shared.policies) {
    open.push_back((metric.better == Better::lower ? -1 : 1) * at.open(policy));
    closed.push_back(at.right(policy));
  }
  const auto tau = kendall_tau(open, closed);
  return at.loops.budgets[at.budget] + (tau ? ": tau " + fixed_text(*tau, 2) : ": no order");
}

std::vector<Figure> agreement(const FigureTables& tables, FigureChoice& choice) {
  const Records* answers = tables.find("answers");
  if (answers == nullptr || tables.results.rows.empty()) return {};
  const bool any_workload = choice.workload.empty();
  const Metric& metric = one_metric(tables, choice);
  if (metric.better == Better::neither) return {};
  const std::optional<LoopsAtCut> found = joined_at(tables, *answers, metric);
  if (!found) return {};
  const LoopsAtCut& loops = *found;
  std::vector<std::string> workloads;
  for (const LoopsAtCut::Item& item : loops.items)
    if (workloads.empty() || workloads.back() != item.workload) workloads.push_back(item.workload);
  if (any_workload) choice.workload = workloads.front();
  known_name(choice.workload, workloads, "--workload");
  const JudgedPolicies judged(loops, 0, 0, 0.95);
  std::vector<AtBudget> budgets;
  for (std::size_t budget = 0; budget < loops.budgets.size(); ++budget)
    budgets.push_back({loops,
                       judged.shared(0, 0, budget, judged.ran_on_all(choice.workload, budget),
                                     judged.items_of(choice.workload)),
                       budget});
  const std::vector<std::string> named = named_policies(loops, budgets, choice);
  Figure figure{.name = "agreement-" + choice.metric,
                .title = capitalised(metric.label) + " of the replay against answers of the running model" +
                         (choice.workload.empty() ? "" : ", " + choice.workload),
                .reading = std::string("A dot is a policy, a panel a budget; the line is the full cache. "
                                       "Where the replay is to be trusted, dots ") +
                           (metric.better == Better::lower ? "fall" : "rise") +
                           " from left to right; tau is Kendall's tau-b of the two orders.",
                .columns = 3};
  std::ranges::replace(figure.name, '_', '-');
  for (const AtBudget& at : budgets) {
    if (!choice.budget.empty() &&
        loops.budgets[at.budget] != known_name(choice.budget, loops.budgets, "--budget"))
      continue;
    if (at.shared.policies.empty() || members(at.shared.items) == 0) continue;
    figure.panels.push_back({title_of(at, metric), chart_of(at, metric, named)});
  }
  if (figure.panels.empty()) return {};
  if (choice.policies.empty())
    figure.remark =
        "Named are the four with the most right answers, on average over the budgets they run at, and "
        "well-known ones.";
  figure.data = figure_data(figure, {.panel = "budget", .series = "policy", .x = metric.key, .y = "right"});
  if (workloads.size() > 1 && any_workload) add_sentence(figure.remark, "Other workloads: --workload.");
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> agreement_figures() {
  return {
      {.name = "agreement",
       .summary = "a measure of the replay against right answers, a panel per budget",
       .needs = "rows of kvsim replay and of kvsim evaluate that join (kvsim agreement says what does not)",
       .draw = agreement}};
}

}  // namespace kvsim::analysis
