// Where a policy loses what it need not: attention loss above the oracle's, per layer and head.
#include <algorithm>

#include "analysis/figures/results_view.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 6;

/// Mean over traces and seeds, [layer][head].
HeatMap map_of(const ResultsView& view, const std::vector<std::size_t>& rows) {
  const TableColumn loss = view.metric("attention_loss"), oracle = view.metric("attention_loss_oracle");
  std::vector<std::vector<RunningMean>> means;
  for (const std::size_t row : rows) {
    const auto layer = view.layer.number(row), head = view.head.number(row);
    const auto value = loss.number(row), best = oracle.number(row);
    if (!layer || !head) continue;
    const auto y = static_cast<std::size_t>(*layer), x = static_cast<std::size_t>(*head);
    if (y >= means.size()) means.resize(y + 1);
    if (x >= means[y].size()) means[y].resize(x + 1);
    if (value && best) means[y][x].add(*value - *best);
  }
  std::size_t width = 0;
  for (const auto& line : means) width = std::max(width, line.size());
  HeatMap map{.unit = "excess attention loss", .numbers = true, .percent = true};
  map.x.label = "KV head";
  map.y.label = "layer";
  for (auto& line : means) {
    auto& cells = map.rows.emplace_back();
    line.resize(width);
    for (const RunningMean& mean : line) cells.push_back(mean.value());
  }
  return map;
}

bool empty(const HeatMap& map) {
  for (const auto& line : map.rows)
    for (const auto& value : line)
      if (value) return false;
  return true;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("head", choice);
  if (all.empty()) return {};
  FigureChoice made = choice;
  made.budget = view.one_budget(all, choice);
  made.metric.clear();
  const std::vector<std::size_t> at_it = view.rows_at(made.budget, all);
  Figure figure;
  const NamedPolicies named(view, leading_metric(tables), choice);
  for (const std::string& label : named.labels()) {
    if (figure.panels.size() == kMostPanels) break;
    std::vector<std::size_t> rows;
    for (const std::size_t row : at_it)
      if (view.policies()[view.policy_of(row)].label == label) rows.push_back(row);
    HeatMap map = map_of(view, rows);
    if (!empty(map)) figure.panels.push_back({label, std::move(map)});
  }
  if (figure.panels.empty()) return {};
  figure.name = "excess";
  figure.title = "Attention loss above the per-step oracle's at its own split, per layer and head, " +
                 at_budget(made.budget);
  figure.reading =
      "Bright cells are heads where a better choice of tokens would have helped; dark ones lose "
      "little that could have been kept. All panels share their colours.";
  if (choice.policies.empty() && named.others() > 0)
    figure.remark = "Shown: " + std::to_string(figure.panels.size()) + " of the policies, by " +
                    std::string(leading_metric(tables).label) + " over all budgets; others by --policy.";
  figure.command = plot_command("excess", tables, made);
  figure.data =
      figure_data(figure, {.panel = "policy", .x = "head", .y = "layer", .value = "excess_attention_loss"});
  return {std::move(figure)};
}

}  // namespace

FigureKind excess_figure() {
  return {"excess", "attention loss above the oracle's per layer and head, a heat map per policy",
          "results of scope head (kvsim replay --per head)", build};
}

}  // namespace kvsim::analysis
