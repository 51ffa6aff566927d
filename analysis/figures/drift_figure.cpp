// How far a model that answers through a policy's cache is from the full cache: its state, layer by layer,
// and its predictions, along the answer.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/drift_metrics.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// Curves over a column of rows of parts of answers.
struct Parts {
  const char *figure, *table, *x;
  const Metric& (*metric)(std::string_view key);
  const char* first_metric;
  bool tokens;  ///< of an answer; else layers of the model
};
constexpr Parts kLayers{"drift", kDriftTable, "layer", drift_metric, "residual_l2", false};
constexpr Parts kTokens{"along", kTokensTable, "index", token_metric, "kl", true};
/// Points of a curve along an answer at most: beyond, each is the mean over as many tokens.
constexpr double kMostPoints = 32;

/// Rows of parts as a view of results asks for them, their part as the layer: of scope layer, and those of
/// the last layer once more as scope all, by which policies are named; tokens name by their mean. Cells that
/// were not run have no part, and no row.
Records as_results(const Records& drift, const Parts& parts, const Metric& metric) {
  Records out;
  for (const char* key : {"trace", "workload", "policy", "params", "role", "budget", "budget_tokens", "scope",
                          "layer", "head", "step", "kept_tokens", metric.key})
    out.columns.push_back({key, "", ""});
  const TableColumn layer(drift, parts.x);
  double last = 0;
  for (std::size_t row = 0; row < drift.rows.size(); ++row)
    last = std::max(last, layer.number(row).value_or(0));
  for (std::size_t row = 0; row < drift.rows.size(); ++row) {
    const auto field = [&](const char* key) { return drift.rows[row][drift.column(key)]; };
    const auto of = layer.number(row);
    if (!of) continue;
    for (const char* scope : {"layer", "all"})
      if (std::string_view(scope) == "layer" || (*of == last && !parts.tokens))
        out.rows.push_back({field("item"), field("workload"), field("policy"), field("params"),
                            assumed_role(text(field("params"))), field("budget"), field("budget_tokens"),
                            std::string(scope), field(parts.x), Value(), Value(), Value(),
                            field(metric.key)});
  }
  return out;
}

/// The rows of one cut.
struct DriftView {
  DriftView(std::string of, const Records& drift, const Parts& parts, const Metric& metric)
      : cut(std::move(of)), rows(as_results(drift, parts, metric)), view(rows) {}

  std::string cut;
  Records rows;
  ResultsView view;
};

/// Means over items and seeds by part, of each policy at the chosen budget; the full cache does not drift.
struct Curves {
  std::map<std::string, std::vector<Point>> of{};
  std::set<std::string> items{};
  std::size_t layers = 0;
  bool tokens;

  Curves(const ResultsView& view, const Parts& parts, const Metric& metric, const FigureChoice& choice)
      : tokens(parts.tokens) {
    const TableColumn drift = view.metric(metric.key);
    std::map<std::string, std::map<double, RunningMean>> sums;
    const std::vector<std::size_t> rows = view.rows_at(choice.budget, view.rows("layer", choice));
    double longest = 1;
    for (const std::size_t row : rows) longest = std::max(longest, view.layer.number(row).value_or(0) + 1);
    const double width = tokens ? std::ceil(longest / kMostPoints) : 1;
    for (const std::size_t row : rows) {
      const ResultsView::Policy& policy = view.policies()[view.policy_of(row)];
      const auto value = drift.number(row);
      if (!value || !policy.compared()) continue;
      sums[policy.label][std::floor(*view.layer.number(row) / width)].add(*value);
      items.insert(view.trace.text(row));
      layers = std::max(layers, static_cast<std::size_t>(*view.layer.number(row)) + 1);
    }
    for (const auto& [label, means] : sums)
      for (const auto& [place, mean] : means)  // in the middle of its tokens
        of[label].push_back({place * width + (width - 1) / 2, *mean.value(), {}, {}});
  }

  /// Those without a name are grey.
  Chart chart(const std::vector<std::string>& named, const Metric& metric) const {
    Chart chart{.x = tokens ? Axis{.label = "token of the answer", .whole = true} : layer_axis(layers),
                .y = metric_axis(metric)};
    if (metric.better == Better::lower) chart.y.low = 0;
    for (std::size_t i = 0; i < named.size(); ++i)
      if (const auto found = of.find(named[i]); found != of.end())
        chart.series.push_back({.label = named[i], .points = found->second, .colour = static_cast<int>(i)});
    for (const auto& [label, points] : of)
      if (std::find(named.begin(), named.end(), label) == named.end())
        chart.series.push_back(
            {.label = label, .weight = Weight::faint, .points = points, .group = "other policies"});
    return chart;
  }
};

std::vector<std::unique_ptr<DriftView>> views_of(const Records& drift, const Parts& parts,
                                                 const Metric& metric, const FigureChoice& choice) {
  std::vector<std::unique_ptr<DriftView>> out;
  for (const std::string& cut : cuts_of(drift)) {
    if (!choice.cut.empty() && choice.cut != cut) continue;
    auto view = std::make_unique<DriftView>(cut, at_cut(drift, cut), parts, metric);
    if (!view->rows.rows.empty()) out.push_back(std::move(view));
  }
  return out;
}

std::string reading_of(const Parts& parts, const Metric& metric) {
  if (parts.tokens)
    return "How far predictions are from the full cache's, token by token of an answer that both are fed; "
           "means "
           "over items. A curve that rises belongs to a policy whose cache serves the end of an answer worse "
           "than its beginning.";
  return std::string("How far ") +
         (metric.key == std::string_view("query_l2") ? "the queries of a layer are"
                                                     : "the residual stream after a layer is") +
         " from the full cache's, fed the same tokens; means over the tokens of an answer, then over items. "
         "A "
         "replay has no drift: it answers the recorded queries.";
}

std::vector<Figure> build_of(const Parts& parts, const FigureTables& tables, const FigureChoice& asked) {
  const Records* drift = tables.find(parts.table);
  if (drift == nullptr) return {};
  const Metric& metric = parts.metric(asked.metric.empty() ? parts.first_metric : asked.metric);
  FigureChoice choice = asked;
  choice.metric = metric.key;
  choice.trace.clear();  // means are over items
  const std::vector<std::unique_ptr<DriftView>> views = views_of(*drift, parts, metric, choice);
  std::vector<Curves> curves;
  std::vector<std::vector<std::string>> wanted;
  for (const auto& each : views) {
    choice.budget = each->view.one_budget(each->view.rows("layer", choice), choice);
    curves.emplace_back(each->view, parts, metric, choice);
    wanted.push_back(NamedPolicies(each->view, metric, choice).labels());
  }
  const std::vector<std::string> named = names_in_turns(wanted);
  Figure figure;
  std::vector<std::string> titles;
  std::set<std::string> grey;
  bool one_layer = true;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (curves[i].of.empty()) continue;
    Chart chart = curves[i].chart(named, metric);
    for (const Series& series : chart.series) {
      if (series.weight == Weight::faint) grey.insert(series.label);
      one_layer = one_layer && series.points.size() == 1;
    }
    figure.panels.push_back({views[i]->cut, std::move(chart)});
    titles.push_back(short_meaning(views[i]->cut) + ", " + std::to_string(curves[i].items.size()) +
                     (curves[i].items.size() == 1 ? " item" : " items"));
  }
  if (figure.panels.empty()) return {};
  figure.data = figure_data(figure, {.panel = figure.panels.size() > 1 ? "cut" : "",
                                     .series = "policy",
                                     .x = parts.tokens ? "token" : "layer",
                                     .y = metric.key});
  for (std::size_t i = 0; i < titles.size(); ++i) figure.panels[i].title = titles[i];
  figure.name = parts.figure;
  figure.title = std::string(parts.tokens ? "Divergence along the answer, "
                                          : "Drift of the state through the layers, ") +
                 at_budget(choice.budget);
  figure.reading = reading_of(parts, metric);
  if (one_layer)
    figure.remark = std::string("One ") + (parts.tokens ? "token" : "layer") + ", so points and no lines.";
  if (!grey.empty())
    figure.remark += std::string(figure.remark.empty() ? "" : " ") +
                     (grey.size() == 1 ? "Grey: the other policy."
                                       : "Grey: the " + std::to_string(grey.size()) + " other policies.");
  figure.command = plot_command(parts.figure, tables, choice);
  figure.columns = 2;
  return {std::move(figure)};
}

template <const Parts& parts>
std::vector<Figure> build(const FigureTables& tables, const FigureChoice& asked) {
  return build_of(parts, tables, asked);
}

}  // namespace

FigureKind drift_figure() {
  return {"drift", "how far the state drifts from the full cache's through the layers, a curve per policy",
          "rows of kvsim evaluate --per layer, of other policies than full", build<kLayers>, kDriftTable};
}

FigureKind along_figure() {
  return {"along", "how far predictions are from the full cache's along the answer, a curve per policy",
          "rows of kvsim evaluate --per token, of other policies than full, in mode both or teacher",
          build<kTokens>, kTokensTable};
}

}  // namespace kvsim::analysis
