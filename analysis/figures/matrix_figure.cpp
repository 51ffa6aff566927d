// Policies by traces: the metric at one budget, for the eye to find what means hide.
#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// Traces by workload, then name.
std::vector<std::string> traces_of(const ResultsView& view, const std::vector<std::size_t>& rows) {
  std::vector<std::pair<std::string, std::string>> named;
  for (const std::size_t row : rows) named.emplace_back(view.workload.text(row), view.trace.text(row));
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  std::vector<std::string> out;
  for (auto& each : named) out.push_back(std::move(each.second));
  return out;
}

struct Line {
  std::string label;
  std::vector<std::optional<double>> values;  ///< per trace
  std::optional<double> mean;                 ///< over the traces it has a value on
};

std::vector<Line> lines_of(const ResultsView& view, const std::vector<std::size_t>& rows,
                           const std::vector<std::string>& traces, const TableColumn& field) {
  std::vector<std::vector<std::size_t>> rows_of(traces.size());
  for (const std::size_t row : rows) {
    const auto at = std::find(traces.begin(), traces.end(), view.trace.text(row)) - traces.begin();
    rows_of[static_cast<std::size_t>(at)].push_back(row);
  }
  std::vector<Line> lines;
  for (const ResultsView::Policy& policy : view.policies()) lines.push_back({policy.label, {}, {}});
  for (const std::vector<std::size_t>& of_trace : rows_of) {
    const std::vector<std::optional<double>> means = view.means(of_trace, field);
    for (std::size_t policy = 0; policy < lines.size(); ++policy)
      lines[policy].values.push_back(means[policy]);
  }
  for (Line& line : lines) {
    RunningMean mean;
    for (const auto& value : line.values)
      if (value) mean.add(*value);
    line.mean = mean.value();
  }
  return lines;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("all", choice);
  if (all.empty()) return {};
  for (const std::string& label : choice.policies) view.policy(label);
  const Metric& metric = one_metric(tables, choice);
  FigureChoice made = choice;
  made.metric = metric.key;
  made.budget = view.one_budget(all, choice);
  const std::vector<std::size_t> rows = view.rows_at(made.budget, all);
  const std::vector<std::string> traces = traces_of(view, rows);
  std::vector<Line> lines = lines_of(view, rows, traces, view.metric(metric.key));
  const std::size_t policies = lines.size();
  std::erase_if(lines, [&](const Line& line) { return !line.mean || !choice.wants(line.label); });
  if (lines.empty()) return {};
  const double sign = metric.better == Better::higher ? -1 : 1;
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const Line& a, const Line& b) { return *a.mean * sign < *b.mean * sign; });

  HeatMap map{.unit = metric.label, .numbers = true, .percent = metric.percent};
  map.x.categories = traces;
  for (Line& line : lines) {
    map.y.categories.push_back(std::move(line.label));
    map.rows.push_back(std::move(line.values));
  }
  Figure figure;
  figure.name = "matrix";
  figure.title = capitalised(metric.label) + " of every policy on every trace, " + at_budget(made.budget);
  figure.reading =
      "Rows are policies, the best mean on top, oracles and what stores everything among them; columns are "
      "traces, those of a workload beside each other. A row that changes colour depends on the prompt.";
  if (const std::size_t left_out = policies - map.rows.size(); left_out > 0 && choice.policies.empty())
    figure.remark = std::to_string(left_out) + (left_out == 1 ? " policy has" : " policies have") +
                    " no value at this budget and no row.";
  figure.command = plot_command("matrix", tables, made);
  figure.panels.push_back({"", std::move(map)});
  figure.data = figure_data(figure, {.x = "trace", .y = "policy", .value = metric.key});
  return {std::move(figure)};
}

}  // namespace

FigureKind matrix_figure() {
  return {"matrix", "every policy on every trace at one budget", "results of scope all", build};
}

}  // namespace kvsim::analysis
