// Quality against budget: a curve per policy between the full cache and an
// oracle, one figure per metric; and the leading metric at all cuts side by
// side.
#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/figures/trace_means.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

struct MeansView {
  const Records& means;
  TableColumn budget{means, "budget"}, policy{means, "policy"}, role{means, "role"}, traces{means, "traces"},
      mean{means, "mean"}, low{means, "low"}, high{means, "high"};

  std::vector<std::size_t> rows(const std::string& metric, const FigureChoice& choice) const {
    std::vector<std::size_t> out =
        rows_where(means, {{"metric", metric}, {"workload", one_workload(choice)}});
    std::erase_if(out, [&](std::size_t row) { return !mean.number(row); });
    return out;
  }
};

std::string of_metric(const Metric& metric) {
  return metric.better == Better::lower ? "Lower is better." : "Higher is better.";
}

class Curves {
 public:
  Curves(const ResultsView& view, const FigureTables& tables, const FigureChoice& choice,
         const Metric& metric)
      : view_(view),
        means_{*tables.find("means")},
        choice_(choice),
        metric_(metric),
        named_(view_, metric, choice),
        known_colours_(view_, leading_metric(tables), choice) {
    for (const std::size_t row : means_.rows(metric.key, choice)) add(row);
    add_best_set();
  }

  /// Without series if there is nothing to draw.
  Chart chart() {
    Chart chart{.x = view_.budget_axis(), .y = metric_axis(metric_)};
    if (!curves_.empty()) append(chart);
    return chart;
  }

  std::optional<Figure> figure(const FigureTables& tables, FigureChoice choice) {
    Chart made = chart();
    if (made.series.empty()) return {};
    choice.metric = metric_.key;
    Figure figure;
    figure.name = "quality-" + std::string(metric_.key);
    std::replace(figure.name.begin(), figure.name.end(), '_', '-');
    figure.title = title(choice);
    figure.reading = reading();
    figure.remark = named_.remark();
    if (view_.budgets().size() == 1)
      figure.remark += (figure.remark.empty() ? "" : " ") +
                       std::string("One budget, so points and no lines: give several, as 10%,25%,50%.");
    figure.command = plot_command("quality", tables, choice);
    figure.panels.push_back({"", std::move(made)});
    figure.data = figure_data(figure, {.series = "policy", .x = "budget", .y = metric_.key});
    return figure;
  }

  std::string title(const FigureChoice& choice) const {
    return capitalised(metric_.label) + " against budget, " + traces_text(traces_, choice.workload);
  }
  std::string reading() const {
    return of_metric(metric_) + " A curve is a policy" +
           (interval_ ? ", its band the interval of its mean over traces" : "") +
           (bounds_ ? "; " + dashed() : ".");
  }
  const NamedPolicies& named() const { return named_; }

 private:
  /// What the neutral lines are.
  std::string dashed() const {
    if (!best_set_.points.empty())
      return "dashed lines are the full cache and the best set of the size, whichever policy splits the "
             "budget best.";
    return metric_.oracles_aim_at_it
               ? "dashed lines are the full cache and an oracle, which knows the future, at its own split "
                 "of the budget."
               : "the dashed line is the full cache.";
  }

  void add(std::size_t row) {
    const std::string& label = means_.policy.text(row);
    Series& series = curves_[label];
    series.label = label;
    traces_ = std::max(traces_, static_cast<std::uint64_t>(means_.traces.number(row).value_or(0)));
    roles_[label] = means_.role.text(row);
    series.points.push_back({view_.place(means_.budget.text(row)), *means_.mean.number(row),
                             means_.low.number(row), means_.high.number(row)});
  }

  /// For the importance retained the bound is the best set of the size, not an oracle, which looks at
  /// attention to come: the most of any policy, since those that split the budget unevenly can reach more.
  void add_best_set() {
    if (std::string_view(metric_.key) != "r") return;
    const TableColumn best = view_.metric("r_oracle");
    const std::vector<std::size_t> all = view_.rows("all", choice_);
    for (const std::string& budget : view_.budgets()) {
      const std::vector<std::optional<double>> means = view_.means(view_.rows_at(budget, all), best);
      std::optional<double> most;
      for (std::size_t i = 0; i < means.size(); ++i)
        if (means[i] && view_.policies()[i].role == "policy") most = std::max(most.value_or(0), *means[i]);
      if (most) best_set_.points.push_back({view_.place(budget), *most, {}, {}});
    }
    best_set_.label = "best set of the size";
    best_set_.weight = Weight::bound;
  }

  /// The oracle that comes furthest, by its mean over budgets.
  const Series* best_oracle() const {
    const Series* best = nullptr;
    double best_mean = 0;
    for (const auto& [label, series] : curves_) {
      if (roles_.at(label) != "oracle") continue;
      RunningMean mean;
      for (const Point& point : series.points) mean.add(point.y);
      if (best == nullptr || metric_.prefers(*mean.value(), best_mean)) {
        best = &series;
        best_mean = *mean.value();
      }
    }
    return best;
  }

  /// What keeps its own budget stands where that is: the full cache as a line, others as a point.
  void add_own_budget(Chart& chart, const Series& series) {
    const double low = view_.place(view_.budgets().front()), high = view_.place(view_.budgets().back());
    Series out = series;
    if (series.label == "full") {
      out.weight = Weight::bound;
      out.points = {{low, series.points.front().y, {}, {}}, {high, series.points.front().y, {}, {}}};
      if (low == high) out.points.pop_back();
      bounds_ = true;
    } else {
      const auto at = own_place(series.label);
      if (!at) return;
      out.group = out.label + " (budget of its own)";
      out.points = {{*at, series.points.front().y, series.points.front().low, series.points.front().high}};
    }
    chart.series.push_back(std::move(out));
  }

  /// Mean over traces, from the results.
  std::optional<double> own_place(const std::string& label) const {
    RunningMean mean;
    for (const std::size_t row : view_.rows("all", choice_)) {
      if (view_.policies()[view_.policy_of(row)].label != label) continue;
      if (const auto at = view_.own_place(row)) mean.add(*at);
    }
    return mean.value();
  }

  void append(Chart& chart) {
    for (auto& [label, series] : curves_)
      std::sort(series.points.begin(), series.points.end(),
                [](const Point& a, const Point& b) { return a.x < b.x; });
    for (const std::string& label : named_.labels()) {
      const auto found = curves_.find(label);
      if (found == curves_.end() || roles_.at(label) != "policy") continue;
      Series series = found->second;
      series.colour = known_colours_.place(label);  // the same in every figure
      for (const Point& point : series.points) interval_ = interval_ || (point.low && point.high);
      chart.series.push_back(std::move(series));
    }
    for (const auto& [label, series] : curves_) {
      if (roles_.at(label) != "policy" || named_.has(label)) continue;
      Series faint = series;
      faint.group = "other policies";
      faint.weight = Weight::faint;
      chart.series.push_back(std::move(faint));
    }
    for (const auto& [label, series] : curves_)
      if (roles_.at(label) == "own_budget") add_own_budget(chart, series);
    const Series* oracle = best_oracle();
    if (!best_set_.points.empty()) {
      chart.series.push_back(best_set_);
      bounds_ = true;
    } else if (oracle != nullptr && metric_.oracles_aim_at_it) {
      Series bound = *oracle;
      bound.group = "oracle (" + bound.label + ")";
      bound.weight = Weight::bound;
      for (Point& point : bound.points) point.low = point.high = std::nullopt;
      chart.series.push_back(std::move(bound));
      bounds_ = true;
    }
  }

  const ResultsView& view_;
  MeansView means_;
  const FigureChoice& choice_;
  const Metric& metric_;
  NamedPolicies named_, known_colours_;
  std::map<std::string, Series> curves_{};
  std::map<std::string, std::string> roles_{};
  Series best_set_{};
  std::uint64_t traces_ = 0;
  bool interval_ = false, bounds_ = false;
};

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
    if (auto figure = Curves(view, tables, choice, *each).figure(tables, choice))
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
    Curves curves(view, parts[i], named, metric);
    Chart chart = curves.chart();
    if (chart.series.empty()) continue;
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
    chart.x.at_values = true;
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
          true};
}

FigureKind quality_figure() {
  return {"quality", "a metric against budget, a curve per policy, between the full cache and an oracle",
          "results of scope all", build};
}

}  // namespace kvsim::analysis
