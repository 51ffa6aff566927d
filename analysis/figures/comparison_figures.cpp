// Policies compared at one budget: their differences to the best, their ranks, and every one on every trace.
#include <algorithm>

#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/figure_rows.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

constexpr const char* kNeedsBudgets =
    "results of scope all of two policies or more that have a budget; what stores everything has none, and "
    "stands in matrix, pareto and read-pareto";

/// Whom ranks and paired differences at a budget leave out, because they keep what they like whatever it is;
/// empty: nobody.
std::string own_budgets_remark(const ResultsView& view) {
  constexpr std::size_t kMostNames = 3;
  std::vector<std::string> names;
  for (const ResultsView::Policy& policy : view.policies())
    if (policy.role == "own_budget" && policy.compared()) names.push_back(policy.label);
  if (names.empty()) return "";
  const std::size_t others = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - others);
  return "Not compared, as they are of no budget: " + joined(names) +
         (others > 0 ? " and " + std::to_string(others) + " more." : ".");
}

/// What the rows of statistics are of; the choice then says which metric and budget.
Where chosen_rows(const FigureTables& tables, const ResultsView& view, FigureChoice& choice) {
  one_metric(tables, choice);
  view.rows_at_one_budget("all", choice);
  return {{"metric", choice.metric}, {"workload", one_workload(choice)}, {"budget", choice.budget}};
}

/// Paired difference of every policy to the best: an interval each, and zero.
std::vector<Figure> differences(const FigureTables& tables, FigureChoice& choice) {
  const Records *table = tables.find("differences"), *means = tables.find("means");
  if (table == nullptr || means == nullptr || tables.results.rows.empty()) return {};
  const ResultsView results(tables.results);
  const Where where = chosen_rows(tables, results, choice);
  const Metric& metric = analysis::metric(choice.metric);
  const std::vector<Statistic> pairs = statistics_where(*table, where, "difference");
  std::vector<std::string> compared;
  for (const Statistic& pair : pairs) compared.insert(compared.end(), {pair.policy, pair.other});
  std::string best;
  double best_mean = 0;
  for (const Statistic& mean : statistics_where(*means, where, "mean")) {
    if (place_in(compared, mean.policy) < 0 || (!best.empty() && !metric.prefers(mean.value, best_mean)))
      continue;
    best = mean.policy;
    best_mean = mean.value;
  }
  std::vector<Statistic> shown = differences_to(best, pairs);
  if (shown.empty()) return {};
  const double sign = metric.better == Better::lower ? 1 : -1;
  std::ranges::stable_sort(
      shown, [&](const Statistic& a, const Statistic& b) { return a.value * sign < b.value * sign; });
  std::uint64_t most = 0;
  for (const Statistic& each : shown) most = std::max(most, each.traces);

  Chart chart{.y = metric_axis(metric), .joined = false, .flipped = true};
  chart.y.label += " minus that of " + best;
  chart.y.line = 0.0;
  chart.series = {{.label = "zero is outside of the interval", .colour = 1},
                  {.label = "no difference shown", .colour = 0}};
  for (const Statistic& each : shown) {
    const bool apart = each.low && each.high && (*each.low > 0 || *each.high < 0);
    chart.series[apart ? 0 : 1].points.push_back(
        {static_cast<double>(chart.x.categories.size()), each.value, each.low, each.high});
    chart.x.categories.push_back(each.policy);
  }
  std::erase_if(chart.series, [](const Series& series) { return series.points.empty(); });
  Figure figure{.title = capitalised(metric.label) + " compared with the best policy, " + best + ", " +
                         at_budget(choice.budget) + ", " + traces_text(most, choice.workload),
                .reading = std::string("A bar is the interval of the paired difference over traces; ") +
                           (sign > 0 ? "right" : "left") + " of zero is worse than " + best +
                           ", and a bar across zero shows no difference."};
  if (std::ranges::any_of(shown, [&](const Statistic& each) { return each.traces < most; }))
    figure.remark = "Some policies could not run on every trace: they are compared on theirs.";
  add_sentence(figure.remark, own_budgets_remark(results));
  figure.panels.push_back({"", std::move(chart)});
  return {std::move(figure)};
}

/// Ranks of policies, and how far they would move with other traces.
std::vector<Figure> ranks(const FigureTables& tables, FigureChoice& choice) {
  const Records* table = tables.find("ranks");
  if (table == nullptr || tables.results.rows.empty()) return {};
  const ResultsView results(tables.results);
  std::vector<Statistic> rows =
      statistics_where(*table, chosen_rows(tables, results, choice), "rank", "rank_low", "rank_high");
  if (rows.empty()) return {};
  std::ranges::stable_sort(rows, [](const Statistic& a, const Statistic& b) { return a.value < b.value; });
  Chart chart{
      .y = {.label = "rank (1 is best)", .low = 0.5, .whole = true}, .joined = false, .flipped = true};
  Series series{.label = "", .colour = 0};
  std::uint64_t most = 0;
  for (const Statistic& rank : rows) {
    series.points.push_back(
        {static_cast<double>(chart.x.categories.size()), rank.value, rank.low, rank.high});
    chart.x.categories.push_back(rank.policy);
    most = std::max(most, rank.traces);
  }
  chart.series.push_back(std::move(series));
  Figure figure{.title = "Rank by " + std::string(metric(choice.metric).label) + ", " +
                         at_budget(choice.budget) + ", " + traces_text(most, choice.workload),
                .reading =
                    "Policies from best to worst; a bar is the interval of the rank over traces, and "
                    "policies whose bars overlap widely could change places.",
                .remark = own_budgets_remark(results)};
  figure.panels.push_back({"", std::move(chart)});
  return {std::move(figure)};
}

/// A policy on every trace.
struct Line {
  std::string label;
  std::vector<std::optional<double>> values{};
  RunningMean mean{};  ///< over the traces it has a value on
};

/// Policies by traces, for the eye to find what means hide.
std::vector<Figure> matrix(const FigureTables& tables, FigureChoice& choice) {
  const ResultsView view(tables.results);
  if (view.rows("all", choice).empty()) return {};
  for (const std::string& label : choice.policies) view.policy(label);
  const Metric& metric = one_metric(tables, choice);
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> traces;  // by workload, then name
  for (const std::size_t row : view.rows_at_one_budget("all", choice))
    traces[{view.workload.text(row), view.trace.text(row)}].push_back(row);
  HeatMap map{.unit = metric.label, .numbers = true, .percent = metric.percent};
  std::vector<Line> lines;
  for (const ResultsView::Policy& policy : view.policies()) lines.push_back({policy.label});
  for (const auto& [name, rows] : traces) {
    map.x.categories.push_back(name.second);
    const std::vector<std::optional<double>> means = view.means(rows, view.metric(metric.key));
    for (std::size_t policy = 0; policy < lines.size(); ++policy) {
      lines[policy].values.push_back(means[policy]);
      if (means[policy]) lines[policy].mean.add(*means[policy]);
    }
  }
  const std::size_t policies = lines.size();
  std::erase_if(lines, [&](const Line& line) { return !line.mean.value() || !choice.wants(line.label); });
  if (lines.empty()) return {};
  const double sign = metric.better == Better::higher ? -1 : 1;
  std::ranges::stable_sort(
      lines, [&](const Line& a, const Line& b) { return *a.mean.value() * sign < *b.mean.value() * sign; });
  for (Line& line : lines) {
    map.y.categories.push_back(std::move(line.label));
    map.rows.push_back(std::move(line.values));
  }
  Figure figure{
      .title = capitalised(metric.label) + " of every policy on every trace, " + at_budget(choice.budget),
      .reading =
          "Rows are policies, the best mean on top, oracles and what stores everything among them; columns "
          "are traces, those of a workload beside each other. A row that changes colour depends on the "
          "prompt."};
  if (const std::size_t left_out = policies - lines.size(); left_out > 0 && choice.policies.empty())
    figure.remark = std::to_string(left_out) + (left_out == 1 ? " policy has" : " policies have") +
                    " no value at this budget and no row.";
  figure.panels.push_back({"", std::move(map)});
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> comparison_figures() {
  return {{.name = "differences",
           .summary = "paired difference of every policy to the best at one budget, with intervals",
           .needs = kNeedsBudgets,
           .draw = differences,
           .data = {.series = "finding", .x = "policy", .y = "difference"}},
          {.name = "ranks",
           .summary = "rank of every policy at one budget, with intervals",
           .needs = kNeedsBudgets,
           .draw = ranks,
           .data = {.x = "policy", .y = "rank"}},
          {.name = "matrix",
           .summary = "every policy on every trace at one budget",
           .needs = "results of scope all",
           .draw = matrix,
           .data = {.x = "trace", .y = "policy"}}};
}

}  // namespace kvsim::analysis
