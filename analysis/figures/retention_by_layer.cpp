#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "analysis/figures/layer_figures.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {
namespace {

/// Sizes at which layers are compared; the table holds them, or others near enough.
constexpr std::array<double, 4> kShares = {0.05, 0.1, 0.2, 0.5};
constexpr double kNear = 0.2;

std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

Panel panel(const std::string& title, const std::string& y) {
  Chart chart;
  chart.y.label = y;
  chart.y.percent = true;
  chart.y.low = 0;
  return {title, std::move(chart)};
}

void add_series(Panel& panel, const std::string& label, const Gathered& by_layer) {
  Chart& chart = std::get<Chart>(panel.content);
  if (!by_layer.empty()) chart.series.push_back({label, Weight::plain, spread_over_traces(by_layer)});
}

/// n over layers, a series per R.
Panel sizes_panel(const Records& sizes) {
  Panel out = panel("Positions a layer needs to retain R", "share of its positions");
  for (const Records& rows : split_by(sizes, "rule"))
    if (text(rows.rows[0][rows.column("rule")]) == "retention")
      for (const auto& [r, same] : split_by_number(rows, "target"))
        add_series(out, "R = " + percent(r), gather(same, "layer", "share"));
  return out;
}

/// Rows of one trace, which has the same sizes in all layers, at the size nearest to a share of its
/// positions.
std::vector<std::vector<Value>> rows_near(const Records& trace, double wanted) {
  const std::size_t share = trace.column("share");
  const auto distance = [&](const std::vector<Value>& row) {
    return std::abs(number(row[share]).value_or(0) - wanted);
  };
  const auto nearest =
      std::min_element(trace.rows.begin(), trace.rows.end(),
                       [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  std::vector<std::vector<Value>> out;
  if (distance(*nearest) > kNear * wanted) return out;
  std::copy_if(trace.rows.begin(), trace.rows.end(), std::back_inserter(out),
               [&](const auto& row) { return row[share] == (*nearest)[share]; });
  return out;
}

/// R over layers, a series per n.
Panel retained_panel(const Records& retention) {
  Panel out = panel("Importance that n positions retain", "share of its importance");
  const std::vector<Records> traces = split_by(retention, "trace");
  for (const double wanted : kShares) {
    Records near{retention.columns, {}};
    for (const Records& trace : traces)
      for (std::vector<Value>& row : rows_near(trace, wanted)) near.rows.push_back(std::move(row));
    add_series(out, "n = " + percent(wanted), gather(near, "layer", "r"));
  }
  return out;
}

Records data_of(const std::vector<Panel>& panels) {
  Records data{{{"panel", "", "what is shown"},
                {"series", "", "for which R, or which n as a share of the layer's positions"},
                {"layer", "", "layer"},
                {"share", "", "mean over traces"},
                {"share_low", "", "least of any trace; undefined for one trace"},
                {"share_high", "", "most of any trace; undefined for one trace"}},
               {}};
  for (const Panel& panel : panels)
    for (const Series& series : std::get<Chart>(panel.content).series)
      for (const Point& point : series.points)
        data.rows.push_back(
            {panel.title, series.label, point.x, point.y, value_of(point.low), value_of(point.high)});
  return data;
}

std::size_t layers_in(const std::vector<Panel>& panels) {
  double last = 0;
  for (const Panel& panel : panels)
    for (const Series& series : std::get<Chart>(panel.content).series)
      for (const Point& point : series.points) last = std::max(last, point.x);
  return static_cast<std::size_t>(last) + 1;
}

}  // namespace

std::optional<Figure> retention_by_layer(const Records& sizes, const Records& retention) {
  Figure figure;
  for (Panel& panel : std::vector{sizes_panel(sizes), retained_panel(retention)})
    if (!std::get<Chart>(panel.content).series.empty()) figure.panels.push_back(std::move(panel));
  if (figure.panels.empty()) return {};
  for (Panel& panel : figure.panels) std::get<Chart>(panel.content).x = layer_axis(layers_in(figure.panels));
  const std::size_t traces = std::max(distinct(sizes, "trace").size(), distinct(retention, "trace").size());
  figure.name = "retention-by-layer";
  figure.title = "What layers need, and what they retain, " + traces_text(traces);
  figure.reading =
      "Where a line is flat, all layers are alike and an even split is right; layers that need more stand "
      "high in the left panel and low in the right one.";
  if (traces > 1) figure.remark = "Bands reach from the least to the most of any trace.";
  figure.command =
      sizes.rows.empty() ? analyze_command("retention", retention) : analyze_command("retention-size", sizes);
  figure.data = data_of(figure.panels);
  return figure;
}

}  // namespace kvsim::analysis
