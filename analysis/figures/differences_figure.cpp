// Paired difference of every policy to the best: an interval each, and zero.
#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/paired_differences.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/figures/chart_parts.hpp"

namespace kvsim::analysis {
namespace {

/// The policy of the best mean among those the rows compare.
std::string best_of(const Records& means, const std::vector<std::pair<const char*, std::string>>& where,
                    const std::vector<std::string>& compared, const Metric& metric) {
  const TableColumn policy(means, "policy"), mean(means, "mean");
  std::string best;
  double best_mean = 0;
  for (const std::size_t row : rows_where(means, where)) {
    const auto value = mean.number(row);
    const bool there = std::find(compared.begin(), compared.end(), policy.text(row)) != compared.end();
    if (!value || !there || (!best.empty() && !metric.prefers(*value, best_mean))) continue;
    best = policy.text(row);
    best_mean = *value;
  }
  return best;
}

Chart forest(const std::vector<Difference>& shown) {
  Chart chart{.joined = false, .flipped = true};
  Series clear{.label = "zero is outside of the interval", .colour = 1};
  Series open{.label = "no difference shown", .colour = 0};
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const Difference& each = shown[i];
    chart.x.categories.push_back(each.policy);
    const bool apart = each.low && each.high && (*each.low > 0 || *each.high < 0);
    (apart ? clear : open).points.push_back({static_cast<double>(i), each.value, each.low, each.high});
  }
  for (Series* series : {&clear, &open})
    if (!series->points.empty()) chart.series.push_back(std::move(*series));
  return chart;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const Records *table = tables.find("differences"), *means = tables.find("means");
  if (table == nullptr || means == nullptr || tables.results.rows.empty()) return {};
  const ResultsView results(tables.results);
  const Metric& metric = one_metric(tables, choice);
  FigureChoice made = choice;
  made.metric = metric.key;
  made.budget = results.one_budget(results.rows("all", choice), choice);
  const std::vector<std::pair<const char*, std::string>> where = {
      {"metric", metric.key}, {"workload", one_workload(choice)}, {"budget", made.budget}};
  const std::vector<std::size_t> rows = rows_where(*table, where);
  std::vector<std::string> compared;
  const TableColumn policy(*table, "policy"), other(*table, "other");
  for (const std::size_t row : rows) compared.insert(compared.end(), {policy.text(row), other.text(row)});
  const std::string best = best_of(*means, where, compared, metric);
  std::vector<Difference> shown = differences_to(best, *table, rows);
  if (shown.empty()) return {};
  const double sign = metric.better == Better::lower ? 1 : -1;
  std::stable_sort(shown.begin(), shown.end(),
                   [&](const Difference& a, const Difference& b) { return a.value * sign < b.value * sign; });
  std::uint64_t most = 0;
  for (const Difference& each : shown) most = std::max(most, each.traces);

  Chart chart = forest(shown);
  chart.y = metric_axis(metric);
  chart.y.label += " minus that of " + best;
  chart.y.line = 0.0;
  Figure figure;
  figure.name = "differences";
  figure.title = capitalised(metric.label) + " compared with the best policy, " + best + ", " +
                 at_budget(made.budget) + ", " + traces_text(most, choice.workload);
  figure.reading = std::string("A bar is the interval of the paired difference over traces; ") +
                   (sign > 0 ? "right" : "left") + " of zero is worse than " + best +
                   ", and a bar across zero shows no difference.";
  if (std::any_of(shown.begin(), shown.end(), [&](const Difference& each) { return each.traces < most; }))
    figure.remark = "Some policies could not run on every trace: they are compared on theirs.";
  if (const std::string others = own_budgets_remark(results); !others.empty())
    figure.remark += (figure.remark.empty() ? "" : " ") + others;
  figure.command = plot_command("differences", tables, made);
  figure.panels.push_back({"", std::move(chart)});
  figure.data = figure_data(figure, {.series = "finding", .x = "policy", .y = "difference"});
  return {std::move(figure)};
}

}  // namespace

FigureKind differences_figure() {
  return {
      "differences", "paired difference of every policy to the best at one budget, with intervals",
      "results of scope all of two policies or more that have a budget; what stores everything has none, and "
      "stands in matrix, pareto and read-pareto",
      build};
}

}  // namespace kvsim::analysis
