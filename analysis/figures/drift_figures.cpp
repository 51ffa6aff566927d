// How far a model that answers through a policy's cache is from the full cache: its state, layer by layer,
// and its predictions, along the answer.
#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// DriftCurves over a column of rows of parts of answers.
struct Parts {
  const char *table, *x;
  const Metric& (*metric)(std::string_view key);
  const char* first_metric;
  const char* part;  ///< "token" of an answer, or "layer" of the model
  const char* title;

  bool tokens() const { return std::string_view(part) == "token"; }
};
constexpr Parts kLayers{kDriftTable,   "layer", drift_metric,
                        "residual_l2", "layer", "Drift of the state through the layers, "};
constexpr Parts kTokens{kTokensTable, "index", token_metric, "kl", "token", "Divergence along the answer, "};

/// Rows of parts as a view of results asks for them, their part as the layer: of scope layer, and those of
/// the last layer once more as scope all, by which policies are named; tokens name by their mean. Cells that
/// were not run have no part, and no row.
Records as_results(const Records& drift, const Parts& parts, const Metric& metric) {
  Records out;
  for (const char* key : {"trace", "workload", "policy", "params", "role", "budget", "budget_tokens", "scope",
                          "layer", "head", "step", "kept_tokens", metric.key})
    out.columns.push_back({key, "", ""});
  const TableColumn part(drift, parts.x);
  double last = 0;
  for (std::size_t row = 0; row < drift.rows.size(); ++row)
    last = std::max(last, part.number(row).value_or(0));
  for (std::size_t row = 0; row < drift.rows.size(); ++row) {
    const auto field = [&](const char* key) { return drift.rows[row][drift.column(key)]; };
    const auto at = part.number(row);
    if (!at) continue;
    for (const char* scope : {"layer", "all"})
      if (std::string_view(scope) == "layer" || (*at == last && !parts.tokens()))
        out.rows.push_back({field("item"), field("workload"), field("policy"), field("params"),
                            assumed_role(text(field("params"))), field("budget"), field("budget_tokens"),
                            std::string(scope), field(parts.x), Value(), Value(), Value(),
                            field(metric.key)});
  }
  return out;
}

/// Means over items and seeds by part, of each policy at the chosen budget; the full cache does not drift.
struct DriftCurves {
  std::string cut{};
  std::map<std::string, Series> of{};
  std::size_t items = 0, layers = 0;
};

DriftCurves curves_of(const ResultsView& view, const Parts& parts, const Metric& metric,
                      FigureChoice& choice) {
  // Points of a curve along an answer at most: beyond, each is the mean over as many tokens.
  constexpr double kMostPoints = 32;
  DriftCurves out;
  const TableColumn drift = view.metric(metric.key);
  std::vector<std::size_t> rows = view.rows_at_one_budget("layer", choice);
  double longest = 1;
  for (const std::size_t row : rows) longest = std::max(longest, view.layer.number(row).value_or(0) + 1);
  const double width = parts.tokens() ? std::ceil(longest / kMostPoints) : 1;
  std::erase_if(rows, [&](std::size_t row) { return !drift.number(row) || !view.policy_of(row).compared(); });
  std::map<std::string, std::map<double, RunningMean>> means;
  for (const std::size_t row : rows) {
    means[view.policy_of(row).label][std::floor(*view.layer.number(row) / width)].add(*drift.number(row));
    out.layers = std::max(out.layers, static_cast<std::size_t>(*view.layer.number(row)) + 1);
  }
  out.items = view.traces(rows);
  for (const auto& [label, of_places] : means) {
    Series& series = out.of[label];
    series.label = label;
    for (const auto& [place, mean] : of_places)  // in the middle of its tokens
      series.points.push_back({place * width + (width - 1) / 2, *mean.value(), {}, {}});
  }
  return out;
}

std::string reading_of(const Parts& parts, const Metric& metric) {
  if (parts.tokens())
    return "How far predictions are from the full cache's, token by token of an answer that both are fed; "
           "means over items. A curve that rises belongs to a policy whose cache serves the end of an answer "
           "worse than its beginning.";
  const bool queries = std::string_view(metric.key) == "query_l2";
  return std::string("How far ") +
         (queries ? "the queries of a layer are" : "the residual stream after a layer is") +
         " from the full cache's, fed the same tokens; means over the tokens of an answer, then over items. "
         "A replay has no drift: it answers the recorded queries.";
}

std::vector<Figure> draw(const Parts& parts, const FigureTables& tables, FigureChoice& choice) {
  const Records* drift = tables.find(parts.table);
  if (drift == nullptr) return {};
  const Metric& metric = parts.metric(choice.metric.empty() ? parts.first_metric : choice.metric);
  choice.metric = metric.key;
  choice.trace.clear();  // means are over items
  std::vector<DriftCurves> cuts;
  std::vector<std::vector<std::string>> wanted;
  for (const std::string& cut : cuts_of(*drift)) {
    if (!choice.cut.empty() && choice.cut != cut) continue;
    Records rows = as_results(at_cut(*drift, cut), parts, metric);
    if (rows.rows.empty()) continue;
    const ResultsView view(std::move(rows));
    cuts.push_back(curves_of(view, parts, metric, choice));
    cuts.back().cut = cut;
    wanted.push_back(NamedPolicies(view, metric, choice).labels);
  }
  const std::vector<std::string> named = names_in_turns(wanted);
  Figure figure{
      .title = parts.title + at_budget(choice.budget), .reading = reading_of(parts, metric), .columns = 2};
  std::set<std::string> grey;
  bool one_part = true;
  for (const DriftCurves& curves : cuts) {
    if (curves.of.empty()) continue;
    Chart chart{
        .x = parts.tokens() ? Axis{.label = "token of the answer", .whole = true} : layer_axis(curves.layers),
        .y = metric_axis(metric)};
    if (metric.better == Better::lower) chart.y.low = 0;
    add_curves(chart, curves.of, named);
    for (const Series& series : chart.series) {
      if (series.weight == Weight::faint) grey.insert(series.label);
      one_part = one_part && series.points.size() == 1;
    }
    figure.panels.push_back({short_meaning(curves.cut) + ", " + std::to_string(curves.items) +
                                 (curves.items == 1 ? " item" : " items"),
                             std::move(chart), curves.cut});
  }
  if (figure.panels.empty()) return {};
  if (one_part) figure.remark = std::string("One ") + parts.part + ", so points and no lines.";
  add_sentence(figure.remark, grey_remark(grey.size()));
  return {std::move(figure)};
}

FigureKind parts_figure(const char* name, const char* summary, const char* needs, const Parts& parts) {
  return {.name = name,
          .summary = summary,
          .needs = needs,
          .draw = [&parts](const FigureTables& tables,
                           FigureChoice& choice) { return draw(parts, tables, choice); },
          .table = parts.table,
          .data = {.panel = "cut", .series = "policy", .x = parts.part}};
}

}  // namespace

std::vector<FigureKind> drift_figures() {
  return {
      parts_figure("drift",
                   "how far the state drifts from the full cache's through the layers, a curve per policy",
                   "rows of kvsim evaluate --per layer, of other policies than full", kLayers),
      parts_figure("along",
                   "how far predictions are from the full cache's along the answer, a curve per policy",
                   "rows of kvsim evaluate --per token, of other policies than full, in mode both or teacher",
                   kTokens)};
}

}  // namespace kvsim::analysis
