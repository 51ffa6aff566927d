// Ranks of policies at one budget, and how far they would move with other traces.
#include <algorithm>

#include "analysis/figures/results_view.hpp"
#include "analysis/figures/chart_parts.hpp"

namespace kvsim::analysis {
namespace {

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const Records* table = tables.find("ranks");
  if (table == nullptr || tables.results.rows.empty()) return {};
  const ResultsView results(tables.results);
  const Metric& metric = one_metric(tables, choice);
  FigureChoice made = choice;
  made.metric = metric.key;
  made.budget = results.one_budget(results.rows("all", choice), choice);
  std::vector<std::size_t> rows = rows_where(
      *table, {{"metric", metric.key}, {"workload", one_workload(choice)}, {"budget", made.budget}});
  const TableColumn policy(*table, "policy"), rank(*table, "rank"), low(*table, "rank_low"),
      high(*table, "rank_high"), traces(*table, "traces");
  std::erase_if(rows, [&](std::size_t row) { return !rank.number(row); });
  if (rows.empty()) return {};
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::size_t a, std::size_t b) { return *rank.number(a) < *rank.number(b); });
  Chart chart{.joined = false, .flipped = true};
  chart.y = {.label = "rank (1 is best)", .low = 0.5, .whole = true};
  Series series{.label = "", .colour = 0};
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    chart.x.categories.push_back(policy.text(rows[i]));
    series.points.push_back(
        {static_cast<double>(i), *rank.number(rows[i]), low.number(rows[i]), high.number(rows[i])});
    most = std::max(most, static_cast<std::uint64_t>(traces.number(rows[i]).value_or(0)));
  }
  chart.series.push_back(std::move(series));

  Figure figure;
  figure.name = "ranks";
  figure.title = "Rank by " + std::string(metric.label) + ", " + at_budget(made.budget) + ", " +
                 traces_text(most, choice.workload);
  figure.reading =
      "Policies from best to worst; a bar is the interval of the rank over traces, and policies "
      "whose bars overlap widely could change places.";
  figure.remark = own_budgets_remark(results);
  figure.command = plot_command("ranks", tables, made);
  figure.panels.push_back({"", std::move(chart)});
  figure.data = figure_data(figure, {.x = "policy", .y = "rank"});
  return {std::move(figure)};
}

}  // namespace

FigureKind ranks_figure() {
  return {
      "ranks", "rank of every policy at one budget, with intervals",
      "results of scope all of two policies or more that have a budget; what stores everything has none, and "
      "stands in matrix, pareto and read-pareto",
      build};
}

}  // namespace kvsim::analysis
