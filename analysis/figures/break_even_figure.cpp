// Loading a prefix against computing it again, over its length.
#include <algorithm>

#include "analysis/figures/cost_view.hpp"
#include "analysis/prefix/break_even.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostPanels = 6;

Series& series_named(Chart& chart, const std::string& label) {
  for (Series& series : chart.series)
    if (series.label == label) return series;
  chart.series.push_back({.label = label});
  return chart.series.back();
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  const Records* rows = tables.find(kBreakEvenTable);
  if (rows == nullptr) return {};
  const auto text = [&](const std::vector<Value>& row, const char* key) {
    return exact_field(row[rows->column(key)], "");
  };
  const auto number = [&](const std::vector<Value>& row, const char* key) {
    return analysis::number(row[rows->column(key)]).value_or(0);
  };
  const bool models = distinct(*rows, "model").size() > 1;
  Figure figure;
  bool left_out = false;
  for (const std::vector<Value>& row : rows->rows) {
    const std::string title = (models ? text(row, "model") + " on " : "") + text(row, "machine");
    auto panel = std::find_if(figure.panels.begin(), figure.panels.end(),
                              [&](const Panel& each) { return each.title == title; });
    if (panel == figure.panels.end()) {
      if (figure.panels.size() == kMostPanels) {
        left_out = true;
        continue;
      }
      figure.panels.push_back({title, Chart{.x = token_axis("prefix"), .y = {.label = "s", .log = true}}});
      panel = figure.panels.end() - 1;
    }
    Chart& chart = std::get<Chart>(panel->content);
    const double x = number(row, "depth") / 1024;
    // The prefix is computed in the same time whichever tier it could come from.
    Series& computed = series_named(chart, "compute");
    computed.weight = Weight::bound;
    if (computed.points.empty() || computed.points.back().x < x)
      computed.points.push_back({x, number(row, "recompute_seconds"), {}, {}});
    Series& load =
        series_named(chart, text(row, "tier") == "host" ? "load from host memory" : "load from SSD");
    load.colour = text(row, "tier") == "host" ? 0 : 1;
    load.points.push_back({x, number(row, "load_seconds"), {}, {}});
  }
  if (figure.panels.empty()) return {};
  figure.name = "break-even";
  figure.title = "Loading a prefix or computing it again" +
                 (models ? std::string() : ": " + text(rows->rows.front(), "model"));
  figure.reading = "Where a line of loading lies below the dashed one, loading is faster.";
  if (left_out) figure.remark = "The first " + std::to_string(kMostPanels) + " machines.";
  figure.command = plot_command("break-even", tables, choice);
  figure.data = figure_data(figure, {.panel = "machine", .series = "way", .x = "prefix", .y = "seconds"});
  return {std::move(figure)};
}

}  // namespace

FigureKind break_even_figure() {
  return {"break-even", "the time to load a prefix from host memory or an SSD, and to compute it again",
          "rows of kvsim cost break-even", build, kBreakEvenTable};
}

}  // namespace kvsim::analysis
