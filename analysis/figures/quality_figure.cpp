// Quality against budget: a curve per policy between the full cache and a bound, one figure per metric; and
// the leading metric at all cuts side by side.
#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/quality_curves.hpp"
#include "analysis/results/cuts.hpp"

namespace kvsim::analysis {
namespace {

constexpr const char* kGapMeans =
    "how much worse a policy's mean is than that of the best policy of the same budget, with the interval of "
    "the "
    "paired difference; at zero is the best";

void add_sentence(std::string& text, const std::string& sentence) {
  if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
}

/// Means alone, gaps alone if they are asked for, or both where the worst squeeze the others.
std::optional<Figure> figure_of(const QualityCurves& curves, const Metric& metric, const ResultsView& view,
                                const FigureTables& tables, FigureChoice choice) {
  if (curves.empty()) return {};
  choice.metric = metric.key;
  Figure figure;
  figure.name = "quality-" + std::string(metric.key) + (choice.gap ? "-gap" : "");
  std::replace(figure.name.begin(), figure.name.end(), '_', '-');
  figure.title = curves.title(choice);
  figure.remark = curves.named().remark();
  if (choice.gap) {
    figure.title =
        capitalised(metric.label) + ": gap" + figure.title.substr(std::string(metric.label).size());
    figure.reading = "The gap is " + std::string(kGapMeans) + ". Lower is better.";
    figure.panels.push_back({"", curves.gaps()});
  } else {
    figure.reading = curves.reading();
    figure.panels.push_back({"", curves.means()});
  }
  if (!choice.gap && curves.squeezed()) {
    figure.panels.front().title = "mean";
    figure.panels.push_back({"gap to the best policy", curves.gaps()});
    std::get<Chart>(figure.panels.back().content).y.label.clear();
    figure.columns = 2;
    figure.reading += " The second panel shows the gap: " + std::string(kGapMeans) + ".";
    add_sentence(figure.remark,
                 "The gap has a panel because the largest is more than three times the end of its axis.");
  }
  if (const std::string beyond = curves.beyond(); figure.panels.size() > 1 || (choice.gap && !beyond.empty()))
    add_sentence(
        figure.remark,
        "Its axis ends at the largest gap of the better half of the policies (by mean gap); beyond it lie, "
        "at some budget, " +
            beyond + '.');
  if (view.budgets().size() == 1)
    add_sentence(figure.remark, "One budget, so points and no lines: give several, as 10%,25%,50%.");
  figure.command = plot_command("quality", tables, choice);
  figure.data = curves.data();
  return figure;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& asked) {
  std::vector<Figure> out;
  if (tables.find("means") == nullptr || tables.results.rows.empty()) return out;
  const ResultsView view(tables.results);
  FigureChoice choice = asked;
  choice.trace.clear();  // means are over traces
  std::vector<const Metric*> wanted;
  wanted.push_back(&one_metric(tables, choice));
  for (const Metric& each : metrics())
    if (choice.metric.empty() && each.better != Better::neither && &each != wanted.front())
      wanted.push_back(&each);
  for (const Metric* each : wanted)
    if (auto figure = figure_of(QualityCurves(view, tables, choice, *each), *each, view, tables, choice))
      out.push_back(std::move(*figure));
  return out;
}

/// Names and colours for all cuts.
std::vector<std::string> names_of_all(const std::vector<FigureTables>& parts, const Metric& metric,
                                      const FigureChoice& choice) {
  std::vector<std::vector<std::string>> wanted;
  for (const FigureTables& part : parts)
    wanted.push_back(NamedPolicies(ResultsView(part.results), metric, choice).labels());
  return names_in_turns(wanted);
}

std::vector<Figure> build_cuts(const FigureTables& tables, const FigureChoice& asked) {
  const std::vector<std::string> cuts = cuts_of(tables.results);
  if (cuts.size() < 2 || tables.find("means") == nullptr) return {};
  const Metric& metric = one_metric(tables, asked);
  std::vector<FigureTables> parts;
  for (const std::string& cut : cuts) parts.push_back(tables_at(tables, cut));
  FigureChoice choice = asked;
  choice.trace.clear();  // means are over traces
  choice.cut.clear();
  FigureChoice named = choice;
  named.policies = names_of_all(parts, metric, choice);
  Figure figure;
  double low = 0, high = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].find("means") == nullptr) continue;
    const ResultsView view(parts[i].results);
    const QualityCurves curves(view, parts[i], named, metric);
    if (curves.empty()) continue;
    Chart chart = curves.means();
    for (const Series& series : chart.series) {
      for (const Point& point : series.points) {
        low = std::min(low, point.low.value_or(point.y));
        high = std::max(high, point.high.value_or(point.y));
      }
    }
    if (figure.panels.empty()) {
      figure.title = curves.title(choice);
      figure.reading = curves.reading();
      figure.remark = curves.named().remark();
    }
    figure.panels.push_back({cuts[i], std::move(chart)});
  }
  if (figure.panels.size() < 2) return {};
  figure.data = figure_data(figure, {.panel = "cut", .series = "policy", .x = "budget", .y = metric.key});
  for (Panel& panel : figure.panels) {
    panel.title = short_meaning(panel.title);
    Axis& y = std::get<Chart>(panel.content).y;
    y.low = low;
    y.high = high;
  }
  choice.metric = metric.key;
  figure.name = "cuts";
  figure.title += ", at every cut";
  figure.reading +=
      " At cut prompt the question is known to the policy, at cut question it is not: a curve that stands "
      "higher "
      "there belongs to a policy that needs it.";
  figure.command = plot_command("cuts", tables, choice);
  figure.columns = 2;
  return {std::move(figure)};
}

}  // namespace

FigureKind cuts_figure() {
  return {"cuts",
          "a metric against budget at every cut, side by side",
          "results of scope all at two cuts or more (kvsim replay --cut "
          "prompt,question)",
          build_cuts,
          "",
          {},
          true};
}

FigureKind quality_figure() {
  return {"quality", "a metric against budget, a curve per policy, between the full cache and a bound",
          "results of scope all", build};
}

}  // namespace kvsim::analysis
