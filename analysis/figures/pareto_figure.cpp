// Bytes against loss: what a policy costs to hold, and which ones nothing beats in both.
#include <algorithm>
#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/results_view.hpp"

namespace kvsim::analysis {
namespace {

struct Spot {
  std::string policy, budget;
  double bytes = 0, value = 0;
};

/// Means over traces of every policy and budget that has both.
std::vector<Spot> spots_of(const ResultsView& view, const std::vector<std::size_t>& all,
                           const Metric& metric) {
  std::vector<Spot> spots;
  for (const std::string& budget : view.budgets()) {
    const std::vector<std::size_t> rows = view.rows_with(view.rows_at(budget, all), view.metric(metric.key));
    const auto bytes = view.means(rows, view.metric("kept_bytes"));
    const auto values = view.means(rows, view.metric(metric.key));
    for (std::size_t policy = 0; policy < bytes.size(); ++policy) {
      const ResultsView::Policy& each = view.policies()[policy];
      if (bytes[policy] && values[policy] && each.role != "oracle")
        spots.push_back({each.label, budget, *bytes[policy], *values[policy]});
    }
  }
  return spots;
}

/// Those that no other one beats: not in bytes without losing in the metric, nor the other way round.
std::vector<Spot> front_of(std::vector<Spot> spots, const Metric& metric) {
  std::stable_sort(spots.begin(), spots.end(), [&](const Spot& a, const Spot& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && metric.prefers(a.value, b.value));
  });
  std::vector<Spot> front;
  for (const Spot& spot : spots)
    if (front.empty() || metric.prefers(spot.value, front.back().value)) front.push_back(spot);
  return front;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> rows = view.rows("all", choice);
  const Metric& metric = one_metric(tables, choice);
  if (rows.empty() || metric.better == Better::neither) return {};
  const std::vector<Spot> spots = spots_of(view, rows, metric);
  if (spots.empty()) return {};
  const std::vector<Spot> front = front_of(spots, metric);
  const NamedPolicies known(view, leading_metric(tables), choice);

  Chart chart{.y = metric_axis(metric)};
  chart.x.label = "KiB held after the prompt (mean over traces)";
  chart.x.log = true;
  Series line{.label = "front", .weight = Weight::bound, .group = "front: nothing is better in both"};
  for (const Spot& spot : front) line.points.push_back({spot.bytes / 1024, spot.value, {}, {}});
  std::map<std::string, Series> off_front, on_front;
  for (const Spot& spot : spots) {
    const bool best = std::any_of(front.begin(), front.end(), [&](const Spot& each) {
      return each.policy == spot.policy && each.budget == spot.budget;
    });
    Series& series = (best ? on_front : off_front)[spot.policy];
    series.label = spot.policy;
    series.dots = true;
    series.points.push_back({spot.bytes / 1024, spot.value, {}, {}});
  }
  for (auto& [policy, series] : off_front) {
    series.group = "other policies and budgets";
    series.weight = Weight::faint;
    chart.series.push_back(std::move(series));
  }
  chart.series.push_back(std::move(line));
  for (const Spot& spot : front) {
    const auto found = on_front.find(spot.policy);
    if (found == on_front.end()) continue;
    found->second.colour = known.place(spot.policy);
    chart.series.push_back(std::move(found->second));
    on_front.erase(found);
  }

  FigureChoice made = choice;
  made.metric = metric.key;
  Figure figure;
  figure.name = "pareto";
  figure.title = capitalised(metric.label) + " against the bytes held, every policy and budget";
  figure.reading = std::string("A dot is a policy at a budget; ") +
                   (metric.better == Better::lower ? "lower" : "higher") +
                   " and further left is better. Named are the policies on the front: nothing is "
                   "better in one and as good in the other.";
  figure.command = plot_command("pareto", tables, made);
  figure.panels.push_back({"", std::move(chart)});
  figure.data = figure_data(figure, {.series = "policy", .x = "kept_kib", .y = metric.key});
  return {std::move(figure)};
}

}  // namespace

FigureKind pareto_figure() {
  return {"pareto", "bytes held against a metric, and the policies nothing beats in both",
          "results of scope all", build};
}

}  // namespace kvsim::analysis
