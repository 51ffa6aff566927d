// What selections find for what they read: recall of the tokens with the most attention against tokens and
// bytes, a curve per method.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/figures/chart_parts.hpp"

namespace kvsim::analysis {
namespace {

/// "full+quest(page=4)" of "full+quest(read=10%,page=4)": what a sweep of `read=` has in common.
std::string method_of(std::string label) {
  for (const std::string start : {",read=", "(read="})
    for (std::size_t at = label.find(start); at != std::string::npos; at = label.find(start, at)) {
      const std::size_t end = label.find_first_of(",)", at + 1);
      if (start.front() == ',')
        label.erase(at, end - at);
      else if (label[end] == ')')
        label.erase(at, end + 1 - at);  // nothing else is in the parentheses
      else
        label.erase(at + 1, end - at);
    }
  return label;
}

struct Spot {
  std::string method;
  double tokens = 0, kib = 0, value = 0;
};

std::vector<Spot> spots_of(const ResultsView& view, const std::vector<std::size_t>& rows,
                           const Metric& metric) {
  const auto tokens = view.means(rows, view.metric("read_tokens")),
             bytes = view.means(rows, view.metric("read_bytes")),
             recall = view.means(rows, view.metric("read_recall")),
             values = view.means(rows, view.metric(metric.key));
  std::vector<Spot> out;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (tokens[i] && bytes[i] && recall[i] && values[i] && view.policies()[i].compared())
      out.push_back({method_of(view.policies()[i].label), *tokens[i], *bytes[i] / 1024, *values[i]});
  return out;
}

/// Of which the first few get a colour: the ones asked for, else those in order of their best value.
std::vector<std::string> methods_of(std::vector<Spot> spots, const Metric& metric,
                                    const FigureChoice& choice) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& method) {
    if (std::find(out.begin(), out.end(), method) == out.end()) out.push_back(method);
  };
  for (const std::string& label : choice.policies) add(method_of(label));
  if (!choice.policies.empty()) return out;
  std::stable_sort(spots.begin(), spots.end(),
                   [&](const Spot& a, const Spot& b) { return metric.prefers(a.value, b.value); });
  for (const Spot& spot : spots) add(spot.method);
  return out;
}

/// 1, 2 and 5 times powers of ten: of few decades no room is left for more, and powers alone are too few.
std::vector<double> ticks_between(double low, double high) {
  std::vector<double> out;
  for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double factor : {1.0, 2.0, 5.0})
      if (const double at = factor * power; at >= low && at <= high) out.push_back(at);
  return out;
}

Chart chart_of(const std::vector<Spot>& spots, double Spot::*size, const std::string& label,
               const Metric& metric, const std::vector<std::string>& named) {
  Chart chart{.x = {.label = label, .log = true}, .y = metric_axis(metric)};
  if (metric.percent) chart.y.low = 0;
  std::map<std::string, Series> curves;
  for (const Spot& spot : spots) {
    Series& series = curves[spot.method];
    series.label = spot.method;
    series.points.push_back({spot.*size, spot.value, {}, {}});
  }
  const auto [least, most] = std::minmax_element(
      spots.begin(), spots.end(), [&](const Spot& a, const Spot& b) { return a.*size < b.*size; });
  chart.x.ticks = ticks_between((*least).*size, (*most).*size);
  for (auto& [method, series] : curves)
    std::sort(series.points.begin(), series.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
  for (const std::string& method : named)
    if (const auto found = curves.find(method); found != curves.end()) {
      found->second.colour = static_cast<int>(chart.series.size());
      chart.series.push_back(std::move(found->second));
      curves.erase(found);
    }
  for (auto& [method, series] : curves) {
    series.group = "other methods";
    series.weight = Weight::faint;
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("all", choice);
  if (all.empty()) return {};
  for (const std::string& label : choice.policies) view.policy(label);
  FigureChoice made = choice;
  made.metric = choice.metric.empty() ? "read_recall" : choice.metric;
  made.budget = view.one_budget(all, choice);
  const Metric& metric = analysis::metric(made.metric);
  const std::vector<std::size_t> rows =
      view.rows_with(view.rows_at(made.budget, all), view.metric(metric.key));
  const std::vector<Spot> spots = spots_of(view, rows, metric);
  if (spots.empty()) return {};
  std::set<std::string> traces;
  for (const std::size_t row : rows) traces.insert(view.trace.text(row));

  const std::vector<std::string> named = names_in_turns({methods_of(spots, metric, choice)});
  Figure figure;
  figure.panels.push_back(
      {"tokens", chart_of(spots, &Spot::tokens, "tokens read by a query head", metric, named)});
  figure.panels.push_back(
      {"bytes", chart_of(spots, &Spot::kib, "KiB read per step, index included", metric, named)});
  figure.data = figure_data(figure, {.panel = "size", .series = "method", .x = "read", .y = metric.key});
  for (Panel& panel : figure.panels) panel.title.clear();
  figure.name = "recall";
  figure.title = capitalised(metric.label) + " against what is read, " + at_budget(made.budget) + ", " +
                 traces_text(traces.size(), choice.workload);
  figure.reading =
      "A curve is a selection, each of its points a setting of read=; other settings are other curves. Left "
      "is what it finds of as many tokens, right what that takes with all query heads and its index.";
  figure.command = plot_command("recall", tables, made);
  figure.columns = 2;
  return {std::move(figure)};
}

}  // namespace

FigureKind recall_figure() {
  return {
      "recall", "recall of the top tokens, or --metric, against tokens and bytes read, a curve per selection",
      "results of scope all in which a policy reads a part of what it stores, such as full+quest; several "
      "settings of read= make a curve",
      build};
}

}  // namespace kvsim::analysis
