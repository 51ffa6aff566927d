#include <algorithm>
#include <cmath>

#include "analysis/figures/layer_figures.hpp"
#include "analysis/figures/layer_tables.hpp"
#include "analysis/figures/trace_means.hpp"

namespace kvsim::analysis {
namespace {

/// More curves cannot be told apart: then some are named and the others grey.
constexpr std::size_t kMostNamed = 6;
/// The slope is shown from here on: the first ones jump from one position to the next, and are so large that
/// the sign of the others would not show.
constexpr double kFirstSlope = 8;

/// One layer: its curves by n.
struct Layer {
  std::uint64_t number = 0;
  Gathered r{}, isr{}, slope{};
};

/// n that every trace has: a mean over other traces at each n would jump.
void keep_common(Gathered& curve, std::size_t traces) {
  std::erase_if(curve, [&](const auto& at) { return at.second.size() != traces; });
}

std::vector<Layer> layers_of(const Records& retention) {
  const std::size_t traces = distinct(retention, "trace").size();
  std::vector<Layer> layers;
  for (const auto& [layer, rows] : split_by_number(retention, "layer")) {
    layers.push_back({static_cast<std::uint64_t>(layer), gather(rows, "n", "r"), gather(rows, "n", "isr"),
                      gather(rows, "n", "isr_slope")});
    Gathered& slope = layers.back().slope;
    slope.erase(slope.begin(), slope.lower_bound(kFirstSlope));
    for (Gathered* curve : {&layers.back().r, &layers.back().isr, &layers.back().slope})
      keep_common(*curve, traces);
    if (layers.back().r.empty()) layers.pop_back();
  }
  return layers;
}

/// How much a layer's importance is concentrated, on the whole: the mean of its curve over log n.
double concentration(const Layer& layer) {
  double sum = 0;
  for (const auto& [n, r] : layer.r) sum += mean_of(r);
  return sum / static_cast<double>(layer.r.size());
}

/// Layers by which a reader can place the others: the first, the last, the most and least concentrated, and
/// the one in the middle.
std::vector<std::uint64_t> landmarks(const std::vector<Layer>& layers) {
  std::vector<const Layer*> order;
  for (const Layer& layer : layers) order.push_back(&layer);
  std::stable_sort(order.begin(), order.end(),
                   [](const Layer* a, const Layer* b) { return concentration(*a) > concentration(*b); });
  return {layers.front().number, layers.back().number, order.front()->number, order.back()->number,
          order[order.size() / 2]->number};
}

Panel panel_of(const std::vector<Layer>& layers, Gathered Layer::*curve, const std::string& title) {
  const std::vector<std::uint64_t> named = landmarks(layers);
  Chart chart;
  chart.x.label = "n (tokens)";
  chart.x.log = true;
  for (const Layer& layer : layers) {
    const bool shown =
        layers.size() <= kMostNamed || std::find(named.begin(), named.end(), layer.number) != named.end();
    Series series;
    series.label = shown ? "layer " + std::to_string(layer.number) : "other layers";
    series.weight = shown ? Weight::plain : Weight::faint;
    for (const auto& [n, values] : layer.*curve) series.points.push_back({n, mean_of(values), {}, {}});
    chart.series.push_back(std::move(series));
  }
  return {title, std::move(chart)};
}

Value mean_at(const Gathered& curve, double n) {
  const auto found = curve.find(n);
  return found == curve.end() ? Value() : Value(mean_of(found->second));
}

Records data_of(const std::vector<Layer>& layers) {
  Records data{{{"layer", "", "layer"},
                {"n", "tokens", "positions that are kept"},
                {"r", "", "share of importance the n largest retain, mean over traces"},
                {"isr", "per bit", "r / log2 n, mean over traces"},
                {"isr_slope", "per bit", "isr(n) - isr(n - 1) as far as shown, mean over traces"}},
               {}};
  for (const Layer& layer : layers)
    for (const auto& [n, r] : layer.r)
      data.rows.push_back({layer.number, n, mean_of(r), mean_at(layer.isr, n), mean_at(layer.slope, n)});
  return data;
}

}  // namespace

std::optional<Figure> retention_curves(const Records& retention) {
  if (retention.rows.empty()) return {};
  const std::vector<Layer> layers = layers_of(retention);
  if (layers.empty()) return {};
  const std::size_t traces = distinct(retention, "trace").size();
  Figure figure;
  figure.name = "retention-curves";
  figure.title = "Importance that the n largest positions of a layer retain, " + traces_text(traces);
  figure.reading =
      "A curve that rises early is a layer whose importance a few positions hold; while f is above zero, a "
      "larger n retains more per bit.";
  figure.remark = "f from n = 8 on.";
  if (traces > 1) figure.remark += " Means at equal n, up to the shortest prompt.";
  figure.command = analyze_command("retention", retention);
  figure.panels = {panel_of(layers, &Layer::r, "R(n)"),
                   panel_of(layers, &Layer::isr, "ISR(n) = R(n) / log2 n"),
                   panel_of(layers, &Layer::slope, "f(n) = ISR(n) - ISR(n - 1)")};
  auto& share = std::get<Chart>(figure.panels[0].content).y;
  share.label = "share of importance";
  share.percent = true;
  std::get<Chart>(figure.panels[1].content).y.label = "share per bit";
  auto& slope = std::get<Chart>(figure.panels[2].content).y;
  slope.label = "share per bit";
  slope.line = 0;
  figure.data = data_of(layers);
  return figure;
}

}  // namespace kvsim::analysis
