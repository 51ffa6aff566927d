// Figures of what layers look at and what allocations give them, after XKV (arXiv 2412.05896, Fig. 2, 3, 4
// and 10), from tables of kvsim analyze. Where several traces are shown as one, that is a mean over traces,
// and the remark or the legend says over which.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/trace_tables.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/statistics/rank_agreement.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

Chart& chart_of(Panel& panel) {
  return std::get<Chart>(panel.content);
}

/// The most of a coordinate that any curve reaches.
double most_of(const std::vector<Panel>& panels, double Point::*coordinate) {
  double most = 0;
  for (const Panel& panel : panels)
    for (const Series& series : std::get<Chart>(panel.content).series)
      for (const Point& point : series.points) most = std::max(most, point.*coordinate);
  return most;
}

/// Shares of importance of one trace, or the mean of several.
struct ImportanceMap {
  std::vector<std::vector<std::optional<double>>> shares{};  ///< [layer][span]
  std::vector<double> first{}, last{};                       ///< [span]
};

ImportanceMap importance_of(const Records& trace) {
  ImportanceMap map;
  const std::size_t layer = trace.column("layer"), first = trace.column("first"), last = trace.column("last"),
                    share = trace.column("share");
  for (const std::vector<Value>& row : trace.rows) {
    const auto at = static_cast<std::size_t>(number(row[layer]).value_or(0));
    if (at >= map.shares.size()) map.shares.resize(at + 1);
    map.shares[at].push_back(number(row[share]));
    if (at > 0) continue;
    map.first.push_back(number(row[first]).value_or(0));
    map.last.push_back(number(row[last]).value_or(0));
  }
  return map;
}

/// Whether all layers have the same spans, and at least one: others may have edited the table.
bool whole(const ImportanceMap& map) {
  return !map.first.empty() &&
         std::ranges::all_of(map.shares, [&](const auto& layer) { return layer.size() == map.first.size(); });
}

/// As many layers and spans, lengths within a tenth: spans of equal number are about the same positions.
bool comparable(const ImportanceMap& a, const ImportanceMap& b) {
  const auto [low, high] = std::minmax(a.last.back(), b.last.back());
  return a.shares.size() == b.shares.size() && a.first.size() == b.first.size() && high <= 1.1 * low;
}

/// Undefined where it is in any.
ImportanceMap mean_map(const std::vector<ImportanceMap>& maps) {
  ImportanceMap mean = maps[0];
  for (std::size_t layer = 0; layer < mean.shares.size(); ++layer)
    for (std::size_t span = 0; span < mean.shares[layer].size(); ++span) {
      std::optional<double>& out = mean.shares[layer][span];
      out = 0.0;
      for (const ImportanceMap& map : maps) {
        const std::optional<double> share = map.shares[layer][span];
        out = out && share ? std::optional(*out + *share / static_cast<double>(maps.size())) : std::nullopt;
      }
    }
  return mean;
}

std::vector<Figure> importance(const Records& table) {
  std::vector<ImportanceMap> maps;
  for (const Records& trace : split_by(table, "trace")) maps.push_back(importance_of(trace));
  std::erase_if(maps, [](const ImportanceMap& map) { return !whole(map); });
  if (maps.empty()) return {};
  const bool all =
      std::ranges::all_of(maps, [&](const ImportanceMap& map) { return comparable(maps[0], map); });
  const ImportanceMap shown = all ? mean_map(maps) : maps[0];
  Figure figure{
      .name = "importance-map",
      .title = "Where in the prompt each layer's importance lies, " + traces_text(all ? maps.size() : 1),
      .reading =
          "A row is a layer and its spans sum to 100 %: importance that gathers in few spans is cheap to "
          "keep, an even row is not."};
  if (!all)
    figure.remark = "The first of " + std::to_string(maps.size()) +
                    " traces: they differ in length or model, so that positions have no common mean.";
  HeatMap map{.x = {.label = "position in the prompt (token)"},
              .y = layer_axis(shown.shares.size()),
              .unit = "share of layer",
              .rows = shown.shares,
              .log = true};
  map.x.low = (shown.first.front() + shown.last.front()) / 2;
  map.x.high = (shown.first.back() + shown.last.back()) / 2;
  figure.panels.push_back({"", std::move(map)});
  figure.data.columns = {{"layer", "", "layer"},
                         {"first", "", "first position of the span"},
                         {"last", "", "its last position"},
                         {"share", "", "of the layer's importance, mean over traces"}};
  for (std::size_t layer = 0; layer < shown.shares.size(); ++layer)
    for (std::size_t span = 0; span < shown.shares[layer].size(); ++span)
      figure.data.rows.push_back(
          {std::uint64_t{layer}, shown.first[span], shown.last[span], value_of(shown.shares[layer][span])});
  return {figure};
}

/// x -> what there is at x, one value per trace.
using Gathered = std::map<double, std::vector<double>>;

/// Rows where either is undefined are left out.
Gathered gather(const Records& table, std::string_view x, std::string_view y) {
  Gathered out;
  if (table.rows.empty()) return out;
  const std::size_t at_x = table.column(x), at_y = table.column(y);
  for (const std::vector<Value>& row : table.rows)
    if (const auto to = number(row[at_x]), value = number(row[at_y]); to && value) out[*to].push_back(*value);
  return out;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Mean over traces, with the least and the most of any as interval if there are several.
std::vector<Point> spread_over_traces(const Gathered& values) {
  std::vector<Point> points;
  for (const auto& [x, all] : values) {
    Point& point = points.emplace_back(Point{x, mean_of(all), {}, {}});
    if (all.size() < 2) continue;
    point.low = *std::ranges::min_element(all);
    point.high = *std::ranges::max_element(all);
  }
  return points;
}

/// What a layer retains, its curves by n.
struct Retention {
  std::uint64_t number = 0;
  Gathered r{}, isr{}, slope{};

  /// How much its importance is concentrated, on the whole: the mean of its curve over log n.
  double concentration() const {
    double sum = 0;
    for (const auto& [n, values] : r) sum += mean_of(values);
    return sum / static_cast<double>(r.size());
  }
};

std::vector<Retention> retention_by_n(const Records& table, std::size_t traces) {
  // The slope is shown from here on: the first ones jump from one position to the next, and are so large that
  // the sign of the others would not show.
  constexpr double kFirstSlope = 8;
  std::vector<Retention> layers;
  for (const auto& [layer, rows] : split_by_number(table, "layer")) {
    Retention each{static_cast<std::uint64_t>(layer), gather(rows, "n", "r"), gather(rows, "n", "isr"),
                   gather(rows, "n", "isr_slope")};
    each.slope.erase(each.slope.begin(), each.slope.lower_bound(kFirstSlope));
    // n that every trace has: a mean over other traces at each n would jump.
    for (Gathered* curve : {&each.r, &each.isr, &each.slope})
      std::erase_if(*curve, [&](const auto& at) { return at.second.size() != traces; });
    if (!each.r.empty()) layers.push_back(std::move(each));
  }
  return layers;
}

/// Layers by which a reader can place the others: the first, the last, the most and least concentrated, and
/// the one in the middle. All, where they can be told apart.
std::vector<std::uint64_t> landmarks(const std::vector<Retention>& layers) {
  constexpr std::size_t kMostNamed = 6;
  std::vector<const Retention*> order;
  for (const Retention& layer : layers) order.push_back(&layer);
  std::ranges::stable_sort(
      order, [](const Retention* a, const Retention* b) { return a->concentration() > b->concentration(); });
  std::vector<std::uint64_t> out{layers.front().number, layers.back().number, order.front()->number,
                                 order.back()->number, order[order.size() / 2]->number};
  if (layers.size() <= kMostNamed)
    for (const Retention& layer : layers) out.push_back(layer.number);
  return out;
}

Panel retention_panel(const std::vector<Retention>& layers, Gathered Retention::*curve, const char* title,
                      Axis y) {
  const std::vector<std::uint64_t> named = landmarks(layers);
  Chart chart{.x = {.label = "n (tokens)", .log = true}, .y = std::move(y)};
  for (const Retention& layer : layers) {
    const bool shown = std::ranges::find(named, layer.number) != named.end();
    Series& series = chart.series.emplace_back(
        Series{.label = shown ? "layer " + std::to_string(layer.number) : "other layers",
               .weight = shown ? Weight::plain : Weight::faint});
    for (const auto& [n, values] : layer.*curve) series.points.push_back({n, mean_of(values), {}, {}});
  }
  return {title, std::move(chart)};
}

Value mean_at(const Gathered& curve, double n) {
  const auto found = curve.find(n);
  return found == curve.end() ? Value() : Value(mean_of(found->second));
}

std::vector<Figure> retention(const Records& table) {
  const std::size_t traces = distinct(table, "trace").size();
  const std::vector<Retention> layers = retention_by_n(table, traces);
  if (layers.empty()) return {};
  Figure figure{.name = "retention-curves",
                .title = "Importance that the n largest positions of a layer retain, " + traces_text(traces),
                .reading =
                    "A curve that rises early is a layer whose importance a few positions hold; while f is "
                    "above zero, a larger n retains more per bit.",
                .remark = "f from n = 8 on."};
  if (traces > 1) add_sentence(figure.remark, "Means at equal n, up to the shortest prompt.");
  figure.panels = {
      retention_panel(layers, &Retention::r, "R(n)", {.label = "share of importance", .percent = true}),
      retention_panel(layers, &Retention::isr, "ISR(n) = R(n) / log2 n", {.label = "share per bit"}),
      retention_panel(layers, &Retention::slope, "f(n) = ISR(n) - ISR(n - 1)",
                      {.label = "share per bit", .line = 0.0})};
  figure.data.columns = {{"layer", "", "layer"},
                         {"n", "tokens", "positions that are kept"},
                         {"r", "", "share of importance the n largest retain, mean over traces"},
                         {"isr", "per bit", "r / log2 n, mean over traces"},
                         {"isr_slope", "per bit", "isr(n) - isr(n - 1) as far as shown, mean over traces"}};
  for (const Retention& layer : layers)
    for (const auto& [n, r] : layer.r)
      figure.data.rows.push_back(
          {layer.number, n, mean_of(r), mean_at(layer.isr, n), mean_at(layer.slope, n)});
  return {figure};
}

std::string percent(double share) {
  return std::to_string(std::lround(100 * share)) + " %";
}

Panel share_panel(const std::string& title, const std::string& y) {
  return {title, Chart{.y = {.label = y, .low = 0, .percent = true}}};
}

void add_series(Panel& panel, const std::string& label, const Gathered& by_layer) {
  if (!by_layer.empty())
    chart_of(panel).series.push_back({label, Weight::plain, spread_over_traces(by_layer)});
}

/// n over layers, a series per R.
Panel sizes_panel(const Records& sizes) {
  Panel out = share_panel("Positions a layer needs to retain R", "share of its positions");
  for (const Records& rows : split_by(sizes, "rule"))
    if (text(rows.rows[0][rows.column("rule")]) == "retention")
      for (const auto& [r, same] : split_by_number(rows, "target"))
        add_series(out, "R = " + percent(r), gather(same, "layer", "share"));
  return out;
}

/// Rows of one trace, which has the same sizes in all layers, at the size nearest to a share of its
/// positions.
std::vector<std::vector<Value>> rows_near(const Records& trace, double wanted) {
  constexpr double kNear = 0.2;
  const std::size_t share = trace.column("share");
  const auto distance = [&](const std::vector<Value>& row) {
    return std::abs(number(row[share]).value_or(0) - wanted);
  };
  const auto nearest = std::ranges::min_element(
      trace.rows, [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  std::vector<std::vector<Value>> out;
  if (distance(*nearest) > kNear * wanted) return out;
  std::ranges::copy_if(trace.rows, std::back_inserter(out),
                       [&](const auto& row) { return row[share] == (*nearest)[share]; });
  return out;
}

/// R over layers, a series per n.
Panel retained_panel(const Records& retention) {
  // Sizes at which layers are compared; the table holds them, or others near enough.
  constexpr std::array<double, 4> kShares = {0.05, 0.1, 0.2, 0.5};
  Panel out = share_panel("Importance that n positions retain", "share of its importance");
  const std::vector<Records> traces = split_by(retention, "trace");
  for (const double wanted : kShares) {
    Records near{retention.columns, {}};
    for (const Records& trace : traces)
      for (std::vector<Value>& row : rows_near(trace, wanted)) near.rows.push_back(std::move(row));
    add_series(out, "n = " + percent(wanted), gather(near, "layer", "r"));
  }
  return out;
}

/// What layers need for the same R, and which R they have of the same n; either table may be missing.
std::vector<Figure> retention_layers(const FigureTables& tables, const FigureChoice&) {
  static const Records kNone;
  const Records *sizes = tables.find("retention-size"), *retention = tables.find("retention");
  if (sizes == nullptr) sizes = &kNone;
  if (retention == nullptr) retention = &kNone;
  Figure figure;
  for (Panel& panel : std::vector{sizes_panel(*sizes), retained_panel(*retention)})
    if (!chart_of(panel).series.empty()) figure.panels.push_back(std::move(panel));
  if (figure.panels.empty()) return {};
  const auto layers = static_cast<std::size_t>(most_of(figure.panels, &Point::x)) + 1;
  for (Panel& panel : figure.panels) chart_of(panel).x = layer_axis(layers);
  const std::size_t traces = std::max(distinct(*sizes, "trace").size(), distinct(*retention, "trace").size());
  figure.name = "retention-by-layer";
  figure.title = "What layers need, and what they retain, " + traces_text(traces);
  figure.reading =
      "Where a line is flat, all layers are alike and an even split is right; layers that need more stand "
      "high in the left panel and low in the right one.";
  if (traces > 1) figure.remark = "Bands reach from the least to the most of any trace.";
  figure.command = sizes->rows.empty() ? analyze_command("retention", *retention)
                                       : analyze_command("retention-size", *sizes);
  figure.data.columns = {{"panel", "", "what is shown"},
                         {"series", "", "for which R, or which n as a share of the layer's positions"},
                         {"layer", "", "layer"},
                         {"share", "", "mean over traces"},
                         {"share_low", "", "least of any trace; undefined for one trace"},
                         {"share_high", "", "most of any trace; undefined for one trace"}};
  for (Panel& panel : figure.panels)
    for (const Series& series : chart_of(panel).series)
      for (const Point& point : series.points)
        figure.data.rows.push_back(
            {panel.title, series.label, point.x, point.y, value_of(point.low), value_of(point.high)});
  return {figure};
}

/// Shares of a policy by layer, of each trace of `layers` layers that it ran on; others are of another model.
Judgements shares_of(const Records& policy, std::size_t layers) {
  Judgements out;
  const std::size_t share = policy.column("share");
  for (const Records& trace : split_by(policy, "trace")) {
    std::vector<double> shares;
    for (const std::vector<Value>& row : trace.rows)
      if (const auto value = number(row[share])) shares.push_back(*value);
    if (shares.size() == layers) out.push_back(std::move(shares));
  }
  return out;
}

bool even(const Judgements& traces) {
  return std::ranges::all_of(traces, [](const std::vector<double>& layers) {
    return std::ranges::all_of(layers, [&](double share) { return std::abs(share - layers[0]) < 1e-9; });
  });
}

std::vector<Point> points_of(const std::vector<double>& layers) {
  std::vector<Point> points;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    points.push_back({static_cast<double>(layer), layers[layer], {}, {}});
  return points;
}

/// A policy's split, a line per trace.
Panel split_panel(const std::string& label, const Judgements& traces) {
  const std::size_t layers = traces[0].size();
  Chart chart{.x = layer_axis(layers), .y = {.label = "share of all tokens", .low = 0, .percent = true}};
  const double last = static_cast<double>(layers) - 1, even_share = 1 / static_cast<double>(layers);
  chart.series.push_back(
      {"even split", Weight::bound, {{0, even_share, {}, {}}, {last, even_share, {}, {}}}});
  std::vector<double> mean;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<double> shares;
    for (const std::vector<double>& trace : traces) shares.push_back(trace[layer]);
    mean.push_back(mean_of(shares));
  }
  if (traces.size() > 1)
    for (const std::vector<double>& trace : traces)
      chart.series.push_back({"one trace", Weight::faint, points_of(trace)});
  chart.series.push_back(
      {traces.size() > 1 ? "mean over traces" : "the trace", Weight::plain, points_of(mean)});
  char agreement[32] = "";
  if (const auto w = concordance(traces)) std::snprintf(agreement, sizeof agreement, " (W = %.2f)", *w);
  return {label + agreement, std::move(chart)};
}

void add_split(Records& data, const std::string& label, const Judgements& traces) {
  for (std::size_t layer = 0; layer < traces[0].size(); ++layer) {
    Gathered one;
    for (const std::vector<double>& trace : traces) one[0].push_back(trace[layer]);
    const Point point = spread_over_traces(one)[0];
    data.rows.push_back({label, std::uint64_t{layer}, std::uint64_t{traces.size()}, point.y,
                         value_of(point.low), value_of(point.high)});
  }
}

/// Tokens by layer, a panel per policy.
std::vector<Figure> allocation(const Records& table) {
  constexpr std::size_t kMostPanels = 6;
  const std::size_t layers = split_by_number(split_by(table, "trace")[0], "layer").size();
  Figure figure{.name = "allocation-by-layer",
                .title = "How policies split a budget of " + text(table.rows[0][table.column("budget")]) +
                         " over layers",
                .reading =
                    "Thin lines are traces: where they lie together, the policy splits alike whatever the "
                    "prompt (W = 1: one order of layers on all of them)."};
  figure.data.columns = {{"policy", "", "policy"},
                         {"layer", "", "layer"},
                         {"traces", "traces", "on which the policy can run"},
                         {"share", "", "of the tokens of all layers, mean over traces"},
                         {"share_low", "", "least of any trace; undefined for one trace"},
                         {"share_high", "", "most of any trace; undefined for one trace"}};
  std::vector<std::string> evenly, left_out;
  std::map<std::string, std::string> labels = policy_labels(table);
  for (const Records& policy : split_by(table, "params")) {
    const std::string& label = labels[text(policy.rows[0][policy.column("params")])];
    const Judgements traces = shares_of(policy, layers);
    if (traces.empty()) continue;
    add_split(figure.data, label, traces);
    if (even(traces))
      evenly.push_back(label);
    else if (figure.panels.size() == kMostPanels)
      left_out.push_back(label);
    else
      figure.panels.push_back(split_panel(label, traces));
  }
  if (figure.panels.empty()) return {};
  const double most = most_of(figure.panels, &Point::y);  // one scale for all: panels are compared
  for (Panel& panel : figure.panels) chart_of(panel).y.high = most;
  if (!evenly.empty()) add_sentence(figure.remark, "Splits evenly: " + joined(evenly) + ".");
  if (!left_out.empty()) add_sentence(figure.remark, "In the data only: " + joined(left_out) + ".");
  return {figure};
}

}  // namespace

std::vector<FigureKind> layer_figures() {
  return {table_figure("importance", "importance of positions by layer, a heat map", importance),
          table_figure("retention",
                       "importance retained, per bit, and its slope by tokens kept, a curve per layer",
                       retention),
          {.name = "retention-layers",
           .summary = "what each layer needs to retain as much, and retains of as many tokens",
           .needs = "the table of kvsim analyze retention-size, or of retention",
           .draw = retention_layers,
           .table = "retention-size"},
          table_figure("allocation", "tokens by layer as policies allot them, a line per trace", allocation)};
}

}  // namespace kvsim::analysis
