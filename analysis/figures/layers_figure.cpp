// Budget per layer: how the policies split what they may keep.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/figures/results_view.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/statistics/running_mean.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostCurves = 8, kMostNames = 3;

struct Split {
  std::vector<std::string> policies;  ///< that share it
  std::vector<Point> points;
};

/// Mean over traces and seeds by layer; policies of the same split together, the most common first.
std::vector<Split> splits_of(const ResultsView& view, const std::vector<std::size_t>& rows) {
  std::map<std::size_t, std::map<double, RunningMean>> sums;
  for (const std::size_t row : rows) {
    const auto layer = view.layer.number(row), tokens = view.budget_tokens.number(row);
    if (!layer || !tokens || view.policies()[view.policy_of(row)].role != "policy") continue;
    sums[view.policy_of(row)][*layer].add(*tokens);
  }
  std::vector<Split> splits;
  for (const auto& [policy, layers] : sums) {
    Split split{{view.policies()[policy].label}, {}};
    for (const auto& [layer, sum] : layers) split.points.push_back({layer, *sum.value(), {}, {}});
    const auto same = std::find_if(splits.begin(), splits.end(), [&](const Split& other) {
      return std::equal(other.points.begin(), other.points.end(), split.points.begin(), split.points.end(),
                        [](const Point& a, const Point& b) { return a.x == b.x && a.y == b.y; });
    });
    if (same == splits.end())
      splits.push_back(std::move(split));
    else
      same->policies.push_back(split.policies.front());
  }
  std::stable_sort(splits.begin(), splits.end(),
                   [](const Split& a, const Split& b) { return a.policies.size() > b.policies.size(); });
  return splits;
}

std::string name_of(const Split& split) {
  if (split.policies.size() <= kMostNames) return joined(split.policies);
  const bool even = std::all_of(split.points.begin(), split.points.end(),
                                [&](const Point& point) { return point.y == split.points.front().y; });
  return (even ? "even: " : split.policies.front() + " and ") +
         std::to_string(split.policies.size() - (even ? 0 : 1)) + (even ? " policies" : " others");
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  std::vector<std::size_t> rows = view.rows("layer", choice);
  if (rows.empty()) return {};
  FigureChoice made = choice;
  made.metric.clear();
  made.budget = view.one_budget(rows, choice);
  std::set<std::string> traces;
  for (const std::string& label : choice.policies) view.policy(label);
  std::erase_if(rows, [&](std::size_t row) {
    const std::string& label = view.policies()[view.policy_of(row)].label;
    return view.budget.text(row) != made.budget || !choice.wants(label);
  });
  for (const std::size_t row : rows) traces.insert(view.trace.text(row));
  const std::vector<Split> splits = splits_of(view, rows);
  if (splits.empty()) return {};

  Chart chart;
  chart.x = {.label = "layer", .whole = true};
  chart.y = {.label = "budget (tokens per lane)", .low = 0.0};
  for (std::size_t i = 0; i < splits.size(); ++i) {
    Series series{
        .label = joined(splits[i].policies, " "), .points = splits[i].points, .group = name_of(splits[i])};
    if (i >= kMostCurves) {
      series.weight = Weight::faint;
      series.group = "others";
    }
    chart.series.push_back(std::move(series));
  }
  Figure figure;
  figure.name = "layers";
  figure.title =
      "Budget per layer, " + at_budget(made.budget) + ", " + traces_text(traces.size(), choice.workload);
  figure.reading =
      "How many tokens a lane of each layer may hold; a flat line is the same for every layer. "
      "Policies that split alike share a curve.";
  if (splits.front().points.size() == 1) figure.remark = "One layer, so points and no lines.";
  figure.command = plot_command("layers", tables, made);
  figure.panels.push_back({"", std::move(chart)});
  figure.data = figure_data(figure, {.series = "policies", .x = "layer", .y = "budget_tokens"});
  return {std::move(figure)};
}

}  // namespace

FigureKind layers_figure() {
  return {"layers", "budget per layer, a curve per way to split it",
          "results of scope layer (kvsim replay --per layer) of a policy that has a budget to split", build};
}

}  // namespace kvsim::analysis
