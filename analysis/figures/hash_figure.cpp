// Hash correlation by code length, against what noise shows anyway; of every query head, a map per length.
#include <algorithm>

#include "analysis/figures/key_figures.hpp"
#include "analysis/figures/lane_map.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {
namespace {

/// `key` against bits, from rows of one value per length.
Series curve(const Records& records, const std::string& key, std::string label, Weight weight) {
  Series out{.label = std::move(label), .weight = weight};
  const std::size_t bits = records.column("bits"), at = records.column(key);
  for (const std::vector<Value>& row : records.rows)
    if (const auto x = number(row[bits]), y = number(row[at]); x && y) out.points.push_back({*x, *y});
  std::sort(out.points.begin(), out.points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  return out;
}

void add_curves(const Records& hash, Chart& chart) {
  const std::vector<Records> traces = split_by(hash, "trace");
  const Records means = trace_means(hash, {"bits"}, {"correlation", "correlation_noise"});
  if (traces.size() > 1)
    for (const Records& trace : traces)
      chart.series.push_back(curve(trace, "correlation", "one trace", Weight::faint));
  chart.series.push_back(
      curve(means, "correlation", traces.size() > 1 ? "mean of traces" : "trace", Weight::plain));
  chart.series.push_back(curve(means, "correlation_noise", "noise of the same shape", Weight::bound));
}

void add_curves_of_layers(const std::map<double, Records>& layers, const Records& hash, Chart& chart) {
  for (const auto& [layer, rows] : layers)
    chart.series.push_back(curve(trace_means(rows, {"bits"}, {"correlation"}), "correlation",
                                 "layer " + std::to_string(static_cast<std::uint64_t>(layer)),
                                 Weight::plain));
  chart.series.push_back(curve(trace_means(hash, {"bits"}, {"correlation_noise"}), "correlation_noise",
                               "noise of the same shape", Weight::bound));
}

}  // namespace

std::optional<Figure> hash_figure(const Records& hash) {
  if (hash.rows.empty()) return {};
  const std::map<double, Records> layers = split_by_number(hash, "layer");
  Figure figure;
  figure.name = "hash-correlation";
  figure.title = "Attention and Hamming similarity, by code length";
  figure.reading =
      "Longer codes correlate more even with noise, so only the distance of a curve from the noise says "
      "something about the traces.";
  figure.remark = means_remark(hash, {"correlation"});
  figure.command = analyze_command("hash", hash);
  figure.data = hash;
  if (!split_by_number(hash, "head").empty()) {
    for (const auto& [bits, rows] : split_by_number(hash, "bits"))
      figure.panels.push_back(
          {std::to_string(static_cast<std::uint64_t>(bits)) + " bits",
           lane_map(trace_means(rows, {"layer", "head"}, {"correlation"}), "correlation", "query head", "")});
    return figure;
  }
  Chart chart;
  chart.x = {.label = "bits of a code", .log = true};
  chart.y = {.label = "correlation", .line = 0.0};
  if (layers.empty())
    add_curves(hash, chart);
  else
    add_curves_of_layers(layers, hash, chart);
  figure.panels.push_back({"", std::move(chart)});
  figure.width = Width::column;
  return figure;
}

}  // namespace kvsim::analysis
