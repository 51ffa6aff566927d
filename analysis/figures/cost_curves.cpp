// Costs over context, batch or budget: a curve per policy, many in rows of panels.
#include <algorithm>
#include <map>

#include "analysis/drawing/figure.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/cost_points.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kMostCostCurves = 8, kMostRows = 4;
constexpr std::size_t kLongestTitle = 32;  ///< of a panel, three of which stand beside each other

/// A curve per policy over one column.
struct CostCurves {
  const char *title = "", *reading = "";
  const char* x = "";  ///< column
  double x_unit = 1;
  Axis axis{};
  struct Panel {
    const char *title = "", *y = "";  ///< column
    const char* label = "";
    double unit = 1;  ///< of the column, in those shown
    bool log = false;
    /// Column a line stands at. Panels without one show only points that fit the machine's memory.
    const char* limit = "";
  };
  std::vector<Panel> panels{};
};

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
std::string others_text(std::vector<std::string> all, const std::vector<std::string>& shown) {
  std::erase_if(all, [&](const std::string& each) { return place_in(shown, each) >= 0; });
  return joined(all);
}

/// Of more than eight curves, those that differ in a trait such as the batch stand in rows of panels, a row
/// for each of its values; what is left beyond eight curves or four rows is in further figures, and each says
/// what the others show.
class Curves {
 public:
  Curves(const CostPoints& points, const CostCurves& spec) : points_(points), spec_(spec) {
    if (curves().size() > kMostCostCurves) choose_facets();
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
    for (const std::size_t row : points_.rows()) {
      const auto x = across(row) ? std::nullopt : points_.number(row, spec_.x);
      if (x && first.emplace(std::pair(facet(row), label(row)), *x).first->second != *x) return true;
    }
    return false;
  }

  /// One for each group of rows and each group of curves.
  std::vector<Figure> figures() const {
    std::vector<Figure> out;
    for (const std::vector<std::string>& rows : groups_of(facets_, kMostRows))
      for (const std::vector<std::string>& shown : groups_of(labels_, kMostCostCurves)) {
        Figure& figure = out.emplace_back();
        for (const std::string& facet : rows)
          for (const CostCurves::Panel& panel : spec_.panels)
            figure.panels.push_back(panel_of(panel, facet, shown));
        if (facets_.size() > 1) figure.columns = spec_.panels.size();
        figure.remark = remark(rows, shown);
      }
    return out;
  }

 private:
  bool over_budget() const { return std::string_view(spec_.x) == "budget_tokens"; }

  /// A size of its own is no place on an axis of budgets: it is a dashed line.
  bool across(std::size_t row) const { return over_budget() && points_.own_size(row); }

  std::string label(std::size_t row) const { return points_.label(row, apart()); }
  std::string facet(std::size_t row) const { return facet_.empty() ? "" : points_.trait(row, facet_); }

  std::vector<std::string> curves() const {
    std::vector<std::string> out;
    for (const std::size_t row : points_.rows()) add_once(out, label(row));
    return out;
  }

  std::vector<std::string> facets_of(const std::string& trait) const {
    std::vector<std::string> out;
    for (const std::size_t row : points_.rows())
      if (const std::string value = trait.empty() ? "" : points_.trait(row, trait); !value.empty())
        add_once(out, value);
    if (out.empty()) out.emplace_back();
    return out;
  }

  /// The trait without which the fewest curves are left in a panel; of several the one of the fewest values.
  void choose_facets() {
    std::optional<std::pair<std::size_t, std::size_t>> least;
    std::string best;
    const std::vector<std::string> own = apart();
    for (const std::string& trait : points_.traits()) {
      if (place_in(own, trait) >= 0) continue;
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
    for (const std::size_t row : points_.rows()) {
      // What has nothing of the trait, as a size of its own has no budget, stands in every row.
      if (const std::string own = facet(row); !own.empty() && own != in) continue;
      const std::string name = label(row);
      if (place_in(shown, name) < 0) continue;
      const auto y = points_.number(row, asked.y);
      const auto limit = *asked.limit == '\0' ? std::nullopt : points_.number(row, asked.limit);
      if (limit) {
        chart.y.line = *limit * asked.unit;
        chart.y.line_label = memory_text(*chart.y.line);
      }
      if (!y || (*asked.limit == '\0' && points_.text(row, "fits") == "no")) continue;
      Series& series = series_named(chart, name);
      if (across(row))
        series.weight = Weight::bound;
      else if (name == points_.text(row, "policy") && labels_.size() <= kMostCostCurves)
        series.policy = points_.text(row, "policy");
      add(series, row, *y * asked.unit);
    }
    sort_points(chart);
    return {shortened((in.empty() ? "" : in + ": ") + asked.title, kLongestTitle), std::move(chart)};
  }

  std::string remark(const std::vector<std::string>& rows, const std::vector<std::string>& shown) const {
    std::string out;
    if (labels_.size() > shown.size())
      out = "At most " + std::to_string(kMostCostCurves) + " curves: " + others_text(labels_, shown) +
            (facets_.size() > rows.size() ? ", and " : "");
    if (facets_.size() > rows.size())
      out += (out.empty() ? "At most " + std::to_string(kMostRows) + " rows: " : "") +
             others_text(facets_, rows);
    if (!out.empty()) out += " are in other figures; --policy and --budget choose.";
    return out;
  }

  void add(Series& series, std::size_t row, double y) const {
    if (!across(row)) {
      series.points.push_back({*points_.number(row, spec_.x) * spec_.x_unit, y, {}, {}});
      return;
    }
    std::vector<double> places;
    for (const std::size_t other : points_.rows())
      if (!across(other)) places.push_back(*points_.number(other, spec_.x) * spec_.x_unit);
    const auto [low, high] = std::ranges::minmax_element(places);
    if (low != places.end()) series.points = {{*low, y, {}, {}}, {*high, y, {}, {}}};
  }

  const CostPoints& points_;
  const CostCurves& spec_;
  std::string facet_{};  ///< a trait; empty: all curves fit
  std::vector<std::string> labels_{}, facets_{};
};

/// None when no two points differ in x alone.
std::vector<Figure> draw(const FigureTables& tables, const FigureChoice& choice, const CostCurves& spec) {
  const Records* costs = tables.find("cost");
  if (costs == nullptr) return {};
  const CostPoints points(*costs, choice);
  const Curves curves(points, spec);
  if (!curves.somewhere()) return {};
  std::vector<Figure> figures = curves.figures();
  const std::string setting = points.setting(curves.apart());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    figures[i].title = spec.title + (setting.empty() ? "" : ": " + setting);
    if (figures.size() > 1)
      figures[i].title += " (" + std::to_string(i + 1) + " of " + std::to_string(figures.size()) + ")";
    figures[i].reading = spec.reading;
  }
  return figures;
}

FigureKind curves_figure(const char* name, const char* summary, const char* needs, const CostCurves& spec) {
  return {.name = name,
          .summary = summary,
          .needs = needs,
          .draw = [spec](const FigureTables& tables,
                         const FigureChoice& choice) { return draw(tables, choice, spec); },
          .table = "cost",
          .data = {.panel = "panel", .series = "policy", .x = spec.x, .y = "value"}};
}

}  // namespace

std::vector<FigureKind> cost_curves() {
  return {
      curves_figure("cost-context",
                    "time to the first token, per token, and memory over the length of the prompt",
                    "rows of kvsim cost estimate with several prompts (--sweep prompt-tokens=...)",
                    {.title = "What a longer prompt costs",
                     .reading = "A curve is a policy, as far as its peak fits the machine, whose memory is "
                                "the line; lower is better in every panel.",
                     .x = "prompt",
                     .x_unit = 1.0 / 1024,
                     .axis = token_axis("prompt"),
                     .panels = {{"first token", "ttft_seconds", "s", 1, true},
                                {"time per token", "tpot_seconds", "ms", kPerMilli},
                                {"peak of memory", "peak_bytes", "GiB per device", 1 / kGibibyte, true,
                                 "machine_bytes"}}}),
      curves_figure(
          "cost-batch", "throughput, time per token and memory over the batch",
          "rows of kvsim cost estimate with several batches (--sweep batch=...)",
          {.title = "What a larger batch brings and costs",
           .reading = "A curve is a policy, as far as its peak fits the machine, whose memory is the line; "
                      "throughput counts the tokens that all sequences generate, their prefill included.",
           .x = "batch",
           .axis = {.label = "batch", .log = true, .at_values = true, .whole = true},
           .panels = {{"throughput", "tokens_per_second", "tokens/s"},
                      {"time per token", "tpot_seconds", "ms", kPerMilli},
                      {"peak of memory", "peak_bytes", "GiB per device", 1 / kGibibyte, true,
                       "machine_bytes"}}}),
      curves_figure("cost-budget", "largest batch, throughput and time per token over the budget",
                    "rows of kvsim cost estimate with several budgets (--sweep budget=...)",
                    {.title = "What a smaller budget buys",
                     .reading = "A curve is a policy; a dashed line has a size of its own. The largest batch "
                                "is the one whose peak still fits the machine.",
                     .x = "budget_tokens",
                     .x_unit = 1.0 / 1024,
                     .axis = token_axis("budget per lane"),
                     .panels = {{"largest batch", "largest_batch", "sequences"},
                                {"throughput", "tokens_per_second", "tokens/s"},
                                {"time per token", "tpot_seconds", "ms", kPerMilli}}})};
}

}  // namespace kvsim::analysis
