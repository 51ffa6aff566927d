// Attention lost against the share of positions dropped: rankings above the best order.
#include <algorithm>

#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostCurves = 8;  ///< rankings with a colour of their own
constexpr std::size_t kMostLayers = 5;  ///< layers with a panel of their own

/// Curves of a table ranking, dropped, loss, loss_ideal.
Chart chart_of(const Records& means, bool shares) {
  const std::size_t loss = means.column("loss"), ideal = means.column("loss_ideal"),
                    dropped = means.column("dropped"), ranking = means.column("ranking");
  Chart chart;
  chart.x = {.label = "positions dropped", .percent = true};
  chart.y = {.label = "attention lost", .low = 0.0, .percent = shares};
  Series best{.label = "best order", .weight = Weight::bound};
  for (const std::vector<Value>& row : means.rows) {
    const std::string& name = text(row[ranking]);
    auto series = std::find_if(chart.series.begin(), chart.series.end(),
                               [&](const Series& known) { return known.label == name; });
    if (series == chart.series.end()) {
      const std::size_t n = chart.series.size();
      series =
          chart.series.insert(chart.series.end(), {.label = name,
                                                   .weight = n < kMostCurves ? Weight::plain : Weight::faint,
                                                   .colour = static_cast<int>(n)});
    }
    const auto x = number(row[dropped]), y = number(row[loss]), least = number(row[ideal]);
    if (x && y) series->points.push_back({*x, *y});
    if (x && least && series == chart.series.begin()) best.points.push_back({*x, *least});
  }
  chart.series.push_back(std::move(best));
  for (Series& series : chart.series)
    std::sort(series.points.begin(), series.points.end(),
              [](const Point& a, const Point& b) { return a.x < b.x; });
  return chart;
}

/// First and last, and evenly between them.
std::vector<std::size_t> shown_layers(std::size_t layers) {
  std::vector<std::size_t> out;
  const std::size_t n = std::min(layers, kMostLayers);
  for (std::size_t i = 0; i < n; ++i) out.push_back(n < 2 ? 0 : i * (layers - 1) / (n - 1));
  return out;
}

}  // namespace

std::optional<Figure> cumulative_loss_figure(const Records& cumulative_loss) {
  if (cumulative_loss.rows.empty()) return {};
  Figure figure;
  figure.name = "cumulative-loss";
  figure.title = "Attention lost by dropping positions in the order of a ranking";
  figure.reading =
      "The nearer a curve is to the best order, the better the ranking knows what attention will not need; "
      "the straight line from nothing to everything is what a draw by lot has on average.";
  figure.remark = means_remark(cumulative_loss, {"loss"});
  figure.command = analyze_command("cumulative-loss", cumulative_loss);
  const std::vector<std::string> values{"loss", "loss_ideal"};
  figure.data = trace_means(cumulative_loss, {"layer", "ranking", "dropped"}, values);
  const std::map<double, Records> layers = split_by_number(figure.data, "layer");
  const bool shares =
      std::all_of(figure.data.rows.begin(), figure.data.rows.end(),
                  [](const std::vector<Value>& row) { return number(row[3]).value_or(0) <= 1.001; });
  figure.panels.push_back({layers.size() > 1 ? "all layers" : "",
                           chart_of(trace_means(figure.data, {"ranking", "dropped"}, values), shares)});
  if (layers.size() < 2) return figure;
  for (const std::size_t i : shown_layers(layers.size())) {
    const auto& [layer, rows] = *std::next(layers.begin(), static_cast<std::ptrdiff_t>(i));
    figure.panels.push_back(
        {"layer " + std::to_string(static_cast<std::uint64_t>(layer)), chart_of(rows, shares)});
  }
  if (layers.size() > kMostLayers)
    figure.remark += (figure.remark.empty() ? "" : " ") + std::to_string(kMostLayers) + " of " +
                     std::to_string(layers.size()) + " layers have a panel; the data has them all.";
  return figure;
}

}  // namespace kvsim::analysis
