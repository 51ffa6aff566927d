// A measure of the replay against the answers of the running model: do both loops see the same order?
#include <algorithm>
#include <cmath>

#include "analysis/agreement/joined_loops.hpp"
#include "analysis/agreement/judged_policies.hpp"
#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "analysis/statistics/trace_groups.hpp"
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

/// Which policies have a colour: those chosen, else the four with the most right answers, on average over the
/// budgets that they run at, and well-known ones.
std::vector<std::string> named_policies(const LoopsAtCut& loops, const std::vector<Shared>& at_budgets,
                                        const FigureChoice& choice) {
  std::vector<std::string> known;
  std::vector<std::pair<double, std::string>> ranking;
  for (std::size_t policy = 0; policy < loops.policies.size(); ++policy) {
    known.push_back(loops.policies[policy].label);
    RunningMean right;
    for (std::size_t budget = 0; budget < at_budgets.size(); ++budget) {
      const std::vector<std::size_t>& there = at_budgets[budget].policies;
      if (std::find(there.begin(), there.end(), policy) != there.end())
        right.add(mean_over(at_budgets[budget].items, loops.of_closed(0, budget, policy)));
    }
    if (right.value()) ranking.emplace_back(-*right.value(), known.back());
  }
  if (!choice.policies.empty()) {
    for (const std::string& wanted : choice.policies) known_name(wanted, known, "--policy");
    return choice.policies;
  }
  std::stable_sort(ranking.begin(), ranking.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> named;
  for (const auto& [_, label] : ranking) {
    const bool well_known =
        label == "random" || label == "streaming_llm" || label == "h2o" || label == "snapkv";
    if (named.size() < 4 || well_known || ranking.size() <= 8) named.push_back(label);
  }
  return named;
}

/// Policies at a budget as dots: the measure's mean and the share of right answers.
Chart chart_of(const LoopsAtCut& loops, const Shared& shared, std::size_t budget, const Metric& metric,
               const std::vector<std::string>& named) {
  Chart chart{.x = metric_axis(metric), .joined = false};
  chart.y = {.label = "right answers", .low = 0, .high = 1, .percent = true};
  std::vector<double> full;
  for (const LoopsAtCut::Item& item : loops.items) full.push_back(item.right_full);
  chart.y.line = mean_over(shared.items, full);
  Series others{.label = "other policies", .weight = Weight::faint};
  others.group = others.label;
  for (const std::size_t policy : shared.policies) {
    const Point dot{mean_over(shared.items, loops.of_open(0, budget, policy)),
                    mean_over(shared.items, loops.of_closed(0, budget, policy)),
                    {},
                    {}};
    const std::string& label = loops.policies[policy].label;
    const auto place = std::find(named.begin(), named.end(), label);
    if (place == named.end()) {
      others.points.push_back(dot);
      continue;
    }
    chart.series.push_back(
        {.label = label, .points = {dot}, .colour = static_cast<int>(place - named.begin())});
  }
  std::stable_sort(chart.series.begin(), chart.series.end(),
                   [](const Series& a, const Series& b) { return a.colour < b.colour; });
  if (!others.points.empty()) chart.series.insert(chart.series.begin(), std::move(others));
  return chart;
}

/// "20%: tau 0.53".
std::string title_of(const LoopsAtCut& loops, const Shared& shared, std::size_t budget,
                     const Metric& metric) {
  std::vector<double> open, closed;
  for (const std::size_t policy : shared.policies) {
    const double sign = metric.better == Better::lower ? -1 : 1;
    open.push_back(sign * mean_over(shared.items, loops.of_open(0, budget, policy)));
    closed.push_back(mean_over(shared.items, loops.of_closed(0, budget, policy)));
  }
  const auto tau = kendall_tau(open, closed);
  return loops.budgets[budget] + (tau ? ": tau " + fixed_text(*tau, 2) : ": no order");
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const Records* answers = tables.find("answers");
  if (answers == nullptr || tables.results.rows.empty()) return {};
  const Metric& metric = one_metric(tables, choice);
  if (metric.better == Better::neither) return {};
  const std::optional<LoopsAtCut> found = joined_at(tables, *answers, metric);
  if (!found) return {};
  const LoopsAtCut& loops = *found;
  std::vector<std::string> workloads;
  for (const LoopsAtCut::Item& item : loops.items)
    if (workloads.empty() || workloads.back() != item.workload) workloads.push_back(item.workload);
  const std::string workload =
      choice.workload.empty() ? workloads.front() : known_name(choice.workload, workloads, "--workload");

  FigureChoice made = choice;
  made.metric = metric.key;
  made.workload = workload;
  const JudgedPolicies judged(loops, 0, 0, 0.95);
  std::vector<Shared> at_budgets;
  for (std::size_t budget = 0; budget < loops.budgets.size(); ++budget)
    at_budgets.push_back(
        judged.shared(0, 0, budget, judged.ran_on_all(workload, budget), judged.items_of(workload)));
  const std::vector<std::string> named = named_policies(loops, at_budgets, choice);
  Figure figure;
  for (std::size_t budget = 0; budget < loops.budgets.size(); ++budget) {
    if (!choice.budget.empty() &&
        loops.budgets[budget] != known_name(choice.budget, loops.budgets, "--budget"))
      continue;
    const Shared& shared = at_budgets[budget];
    if (shared.policies.empty() || members(shared.items) == 0) continue;
    figure.panels.push_back(
        {title_of(loops, shared, budget, metric), chart_of(loops, shared, budget, metric, named)});
  }
  if (figure.panels.empty()) return {};
  figure.name = std::string("agreement-") + metric.key;
  std::replace(figure.name.begin(), figure.name.end(), '_', '-');
  figure.title = capitalised(metric.label) + " of the replay against answers of the running model" +
                 (workload.empty() ? "" : ", " + workload);
  figure.reading = std::string(
                       "A dot is a policy, a panel a budget; the line is the full cache. Where the "
                       "replay is to be trusted, dots ") +
                   (metric.better == Better::lower ? "fall" : "rise") +
                   " from left to right; tau is Kendall's tau-b of the two orders.";
  if (choice.policies.empty())
    figure.remark =
        "Named are the four with the most right answers, on average over the budgets they run at, and "
        "well-known ones.";
  if (workloads.size() > 1 && choice.workload.empty())
    figure.remark += std::string(figure.remark.empty() ? "" : " ") + "Other workloads: --workload.";
  figure.command = plot_command("agreement", tables, made);
  figure.columns = 3;
  figure.data = figure_data(figure, {.panel = "budget", .series = "policy", .x = metric.key, .y = "right"});
  return {std::move(figure)};
}

}  // namespace

FigureKind agreement_figure() {
  return {"agreement", "a measure of the replay against right answers, a panel per budget",
          "rows of kvsim replay and of kvsim evaluate that join (kvsim agreement says what does not)", build};
}

}  // namespace kvsim::analysis
