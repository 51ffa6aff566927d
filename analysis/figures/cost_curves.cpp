// Curves over context, batch or budget, one per policy.
#include <algorithm>
#include <map>

#include "analysis/figures/cost_view.hpp"

namespace kvsim::analysis {
namespace {

class Curves {
 public:
  Curves(const CostView& view, const CostCurves& spec) : view_(view), spec_(spec) {}

  Panel panel(const CostCurves::Panel& asked) const {
    Chart chart{.x = spec_.axis, .y = {.label = asked.label, .log = asked.log}};
    std::map<std::string, std::size_t> places;
    for (const std::size_t row : view_.rows()) {
      const auto y = view_.number(row, asked.y);
      const auto limit = *asked.limit == '\0' ? std::nullopt : view_.number(row, asked.limit);
      if (limit) chart.y.line = *limit * asked.unit;
      if (!y || (*asked.limit == '\0' && view_.text(row, "fits") == "no")) continue;
      const std::string label = view_.label(row, apart());
      const auto [found, fresh] = places.emplace(label, chart.series.size());
      if (fresh) chart.series.push_back(series_of(row, label));
      add(chart.series[found->second], row, *y * asked.unit);
    }
    for (Series& series : chart.series)
      std::sort(series.points.begin(), series.points.end(),
                [](const Point& a, const Point& b) { return a.x < b.x; });
    return {asked.title, std::move(chart)};
  }

  /// Whether some policy has two values of x with all else equal.
  bool somewhere() const {
    std::map<std::string, double> first;
    for (const std::size_t row : view_.rows()) {
      const auto x = across(row) ? std::nullopt : view_.number(row, spec_.x);
      if (x && first.emplace(view_.label(row, apart()), *x).first->second != *x) return true;
    }
    return false;
  }

  std::vector<std::string> apart() const {
    return over_budget() ? std::vector<std::string>{"budget"} : std::vector<std::string>{spec_.x};
  }

 private:
  bool over_budget() const { return std::string_view(spec_.x) == "budget_tokens"; }

  /// A size of its own is no place on an axis of budgets.
  bool across(std::size_t row) const { return over_budget() && view_.own_size(row); }

  Series series_of(std::size_t row, const std::string& label) const {
    Series series{.label = label};
    if (across(row))
      series.weight = Weight::bound;
    else if (label == view_.text(row, "policy"))
      series.colour = view_.colour(row);
    return series;
  }

  void add(Series& series, std::size_t row, double y) const {
    if (!across(row)) {
      series.points.push_back({*view_.number(row, spec_.x) * spec_.x_unit, y, {}, {}});
      return;
    }
    std::vector<double> places;
    for (const std::size_t other : view_.rows())
      if (!across(other)) places.push_back(*view_.number(other, spec_.x) * spec_.x_unit);
    const auto [low, high] = std::minmax_element(places.begin(), places.end());
    if (low == places.end()) return;
    series.points = {{*low, y, {}, {}}, {*high, y, {}, {}}};
  }

  const CostView& view_;
  const CostCurves& spec_;
};

}  // namespace

std::vector<Figure> cost_curves(const FigureTables& tables, const FigureChoice& choice,
                                const CostCurves& spec) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostView view(*costs, choice);
  const Curves curves(view, spec);
  if (!curves.somewhere()) return {};
  Figure figure;
  figure.name = spec.figure;
  for (const CostCurves::Panel& panel : spec.panels) figure.panels.push_back(curves.panel(panel));
  const std::string setting = view.setting(curves.apart());
  figure.title = spec.title + (setting.empty() ? "" : ": " + setting);
  figure.reading = spec.reading;
  figure.command = plot_command(spec.figure, tables, choice);
  figure.data = figure_data(figure, {.panel = "panel", .series = "policy", .x = spec.x, .y = "value"});
  return {std::move(figure)};
}

}  // namespace kvsim::analysis
