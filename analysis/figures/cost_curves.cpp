// Curves over context, batch or budget, one per policy; many in rows of panels.
#include <algorithm>
#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/cost_view.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostCurves = 8, kMostRows = 4;
constexpr std::size_t kLongestTitle = 32;  ///< of a panel, three of which stand beside each other

void add_once(std::vector<std::string>& all, const std::string& item) {
  if (std::find(all.begin(), all.end(), item) == all.end()) all.push_back(item);
}

/// In groups of at most `most`.
std::vector<std::vector<std::string>> groups_of(const std::vector<std::string>& all, std::size_t most) {
  std::vector<std::vector<std::string>> out;
  for (const std::string& each : all) {
    if (out.empty() || out.back().size() == most) out.emplace_back();
    out.back().push_back(each);
  }
  return out;
}

/// Everything but `shown`.
std::string others_text(const std::vector<std::string>& all, const std::vector<std::string>& shown) {
  std::vector<std::string> left;
  for (const std::string& each : all)
    if (std::find(shown.begin(), shown.end(), each) == shown.end()) left.push_back(each);
  return joined(left);
}

class Curves {
 public:
  Curves(const CostView& view, const CostCurves& spec) : view_(view), spec_(spec) {
    if (curves().size() > kMostCurves) choose_facets();
    labels_ = curves();
    facets_ = facets_of(facet_);
  }

  std::vector<std::string> apart() const {
    std::vector<std::string> out{over_budget() ? "budget" : spec_.x};
    if (!facet_.empty()) out.push_back(facet_);
    return out;
  }

  /// Whether some policy has two values of x with all else equal.
  bool somewhere() const {
    std::map<std::pair<std::string, std::string>, double> first;
    for (const std::size_t row : view_.rows()) {
      const auto x = across(row) ? std::nullopt : view_.number(row, spec_.x);
      if (x && first.emplace(std::pair(facet(row), label(row)), *x).first->second != *x) return true;
    }
    return false;
  }

  /// One for each group of rows and each group of curves.
  std::vector<Figure> figures() const {
    std::vector<Figure> out;
    for (const std::vector<std::string>& rows : groups_of(facets_, kMostRows)) {
      for (const std::vector<std::string>& shown : groups_of(labels_, kMostCurves)) {
        Figure& figure = out.emplace_back();
        for (const std::string& facet : rows)
          for (const CostCurves::Panel& panel : spec_.panels)
            figure.panels.push_back(panel_of(panel, facet, shown));
        if (facets_.size() > 1) figure.columns = spec_.panels.size();
        figure.remark = remark(rows, shown);
      }
    }
    return out;
  }

 private:
  bool over_budget() const { return std::string_view(spec_.x) == "budget_tokens"; }

  /// A size of its own is no place on an axis of budgets.
  bool across(std::size_t row) const { return over_budget() && view_.own_size(row); }

  std::string label(std::size_t row) const { return view_.label(row, apart()); }
  std::string facet(std::size_t row) const { return facet_.empty() ? "" : view_.trait(row, facet_); }

  std::vector<std::string> curves() const {
    std::vector<std::string> out;
    for (const std::size_t row : view_.rows()) add_once(out, label(row));
    return out;
  }

  std::vector<std::string> facets_of(const std::string& trait) const {
    std::vector<std::string> out;
    for (const std::size_t row : view_.rows())
      if (const std::string value = trait.empty() ? "" : view_.trait(row, trait); !value.empty())
        add_once(out, value);
    if (out.empty()) out.emplace_back();
    return out;
  }

  /// The trait without which the fewest curves are left in a panel; of several the one of the fewest values.
  void choose_facets() {
    std::optional<std::pair<std::size_t, std::size_t>> least;
    std::string best;
    const std::vector<std::string> own = apart();
    for (const std::string& trait : view_.traits()) {
      if (std::find(own.begin(), own.end(), trait) != own.end()) continue;
      facet_ = trait;
      const std::pair cost(curves().size(), facets_of(trait).size());
      if (least && *least <= cost) continue;
      least = cost;
      best = trait;
    }
    facet_ = best;
  }

  Panel panel_of(const CostCurves::Panel& asked, const std::string& in,
                 const std::vector<std::string>& shown) const {
    Chart chart{.x = spec_.axis, .y = {.label = asked.label, .log = asked.log}};
    std::map<std::string, std::size_t> places;
    for (const std::size_t row : view_.rows()) {
      // What has nothing of the trait, as a size of its own has no budget, stands in every row.
      if (const std::string own = facet(row); !own.empty() && own != in) continue;
      const std::string name = label(row);
      if (std::find(shown.begin(), shown.end(), name) == shown.end()) continue;
      const auto y = view_.number(row, asked.y);
      const auto limit = *asked.limit == '\0' ? std::nullopt : view_.number(row, asked.limit);
      if (limit) chart.y.line = *limit * asked.unit;
      if (!y || (*asked.limit == '\0' && view_.text(row, "fits") == "no")) continue;
      const auto [found, fresh] = places.emplace(name, chart.series.size());
      if (fresh) chart.series.push_back(series_of(row, name));
      add(chart.series[found->second], row, *y * asked.unit);
    }
    for (Series& series : chart.series)
      std::sort(series.points.begin(), series.points.end(),
                [](const Point& a, const Point& b) { return a.x < b.x; });
    return {shortened((in.empty() ? "" : in + ": ") + asked.title, kLongestTitle), std::move(chart)};
  }

  std::string remark(const std::vector<std::string>& rows, const std::vector<std::string>& shown) const {
    std::string out;
    if (labels_.size() > shown.size())
      out = "At most " + std::to_string(kMostCurves) + " curves: " + others_text(labels_, shown) +
            (facets_.size() > rows.size() ? ", and " : "");
    if (facets_.size() > rows.size())
      out += (out.empty() ? "At most " + std::to_string(kMostRows) + " rows: " : "") +
             others_text(facets_, rows);
    if (!out.empty()) out += " are in other figures; --policy and --budget choose.";
    return out;
  }

  Series series_of(std::size_t row, const std::string& label) const {
    Series series{.label = label};
    if (across(row))
      series.weight = Weight::bound;
    else if (label == view_.text(row, "policy") && labels_.size() <= kMostCurves)
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
  std::string facet_{};  ///< a trait; empty: all curves fit
  std::vector<std::string> labels_{}, facets_{};
};

}  // namespace

std::vector<Figure> cost_curves(const FigureTables& tables, const FigureChoice& choice,
                                const CostCurves& spec) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostView view(*costs, choice);
  const Curves curves(view, spec);
  if (!curves.somewhere()) return {};
  std::vector<Figure> figures = curves.figures();
  const std::string setting = view.setting(curves.apart());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    Figure& figure = figures[i];
    figure.name = spec.figure + (i == 0 ? std::string() : "-" + std::to_string(i + 1));
    figure.title =
        spec.title + (setting.empty() ? "" : ": " + setting) +
        (figures.size() == 1 ? std::string()
                             : " (" + std::to_string(i + 1) + " of " + std::to_string(figures.size()) + ")");
    figure.reading = spec.reading;
    figure.command = plot_command(spec.figure, tables, choice);
    figure.data = figure_data(figure, {.panel = "panel", .series = "policy", .x = spec.x, .y = "value"});
  }
  return figures;
}

}  // namespace kvsim::analysis
