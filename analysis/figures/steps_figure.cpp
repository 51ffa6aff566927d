// A number over measured steps: how much of each step's attention falls on what is still held and read, or
// another metric of single steps.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/results_view.hpp"
#include "analysis/figures/step_means.hpp"
#include "analysis/figures/chart_parts.hpp"

namespace kvsim::analysis {
namespace {

/// Attention loss is shown as what is retained, unless it is asked for by its name; bytes as KiB.
struct Shown {
  const Metric* metric = nullptr;
  bool retained = false;

  bool bytes() const { return std::string_view(metric->unit).starts_with("bytes"); }
  double value(double of) const { return retained ? 1 - of : bytes() ? of / 1024 : of; }
  std::string key() const {
    const std::string key = metric->key;
    return retained ? "retained_mass" : bytes() ? key.substr(0, key.rfind('_')) + "_kib" : key;
  }
  Axis axis() const {
    if (retained) return {.label = "retained mass (1 - attention loss)", .percent = true};
    Axis axis = metric_axis(*metric);
    if (bytes()) axis.label = std::string(metric->label) + " (KiB)";
    return axis;
  }
};

/// As asked; else what is retained, or total variation where numbers are stored otherwise.
Shown shown_of(const ResultsView& view, const std::vector<std::size_t>& rows, const FigureChoice& choice) {
  if (!choice.metric.empty()) {
    std::vector<std::string> known;
    for (const Metric& each : metrics())
      if (each.measure_step != nullptr) known.emplace_back(each.key);
    return {&metric(known_name(choice.metric, known, "--metric")), false};
  }
  const Metric& loss = metric("attention_loss");
  const Metric& shown = more_defined(view, rows, loss, metric("total_variation"));
  return {&shown, &shown == &loss};
}

class Curves {
 public:
  Curves(const ResultsView& view, const std::vector<std::size_t>& rows, const NamedPolicies& named,
         const Shown& shown)
      : named_(named), shown_(shown), steps_(view, view.rows_with(rows, view.metric(shown.metric->key))) {
    const TableColumn value = view.metric(shown.metric->key), oracle = view.metric("attention_loss_oracle");
    for (const std::size_t row : steps_.rows()) {
      const auto mine = value.number(row), best = oracle.number(row);
      const ResultsView::Policy& policy = view.policies()[view.policy_of(row)];
      if (!mine || policy.role == "oracle") continue;
      if (policy.compared())
        curves_[policy.label][*view.step.number(row)].add(shown.value(*mine));
      else if (!shown.retained)
        full_[*view.step.number(row)].add(shown.value(*mine));
      // The oracle is of the budget, which what stores everything does not keep to.
      if (shown.retained && best && policy.role == "policy")
        oracles_[policy.label][*view.step.number(row)].add(1 - *best);
    }
  }

  Chart chart() const {
    Chart chart;
    chart.x = {.label = "measured step", .whole = true};
    chart.y = shown_.axis();
    for (const std::string& label : named_.labels()) {
      const auto found = curves_.find(label);
      if (found != curves_.end())
        chart.series.push_back(
            {.label = label, .points = points_of(found->second), .colour = named_.place(label)});
    }
    for (const auto& [label, curve] : curves_)
      if (!named_.has(label))
        chart.series.push_back(
            {.label = label, .weight = Weight::faint, .points = points_of(curve), .group = "other policies"});
    if (!full_.empty())
      chart.series.push_back({.label = "full", .weight = Weight::bound, .points = points_of(full_)});
    if (!oracles_.empty())
      chart.series.push_back(
          {.label = "per-step oracle (own splits)", .weight = Weight::bound, .points = best_oracle()});
    return chart;
  }
  const StepRows& steps() const { return steps_; }
  bool empty() const { return curves_.empty(); }

 private:
  /// Policies that split the budget differently have different oracles: the best at each step.
  std::vector<Point> best_oracle() const {
    std::map<double, double> best;
    for (const auto& [label, steps] : oracles_)
      for (const Point& point : points_of(steps)) best[point.x] = std::max(best[point.x], point.y);
    std::vector<Point> out;
    for (const auto& [x, y] : best) out.push_back({x, y, {}, {}});
    return out;
  }

  const NamedPolicies& named_;
  Shown shown_;
  StepRows steps_;
  std::map<std::string, StepMeans> curves_, oracles_;
  StepMeans full_;
};

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("step", choice);
  if (all.empty()) return {};
  const Shown shown = shown_of(view, all, choice);
  FigureChoice made = choice;
  made.metric = shown.retained ? "" : shown.metric->key;
  made.budget = view.one_budget(all, choice);
  const NamedPolicies named(view, leading_metric(tables), choice);
  const Curves curves(view, view.rows_at(made.budget, all), named, shown);
  if (curves.empty()) return {};
  Figure figure;
  figure.name = "steps";
  figure.title = (shown.retained ? "Attention retained" : capitalised(shown.metric->label)) +
                 std::string(" over measured steps, ") + at_budget(made.budget) + ", " +
                 traces_text(curves.steps().traces(), choice.workload);
  figure.reading =
      shown.retained
          ? "The share of each step's attention that falls on tokens still held, and read. Replay is open "
            "loop: a real run would have left the recorded one where this is low, and a falling curve says "
            "from when on. Step 0 is the last prompt token, asked once more."
          : "One measured step after the other; step 0 is the last prompt token, asked once more.";
  figure.remark = named.remark();
  if (curves.steps().left_out())
    figure.remark +=
        (figure.remark.empty() ? "" : " ") + std::string("Steps that only some traces have are left out.");
  figure.command = plot_command("steps", tables, made);
  figure.panels.push_back({"", curves.chart()});
  figure.data = figure_data(figure, {.series = "policy", .x = "step", .y = shown.key()});
  return {std::move(figure)};
}

}  // namespace

FigureKind steps_figure() {
  return {"steps", "attention retained over measured steps, or --metric read_bytes, hit_rate, ..., by policy",
          "results of scope step (kvsim replay --per step)", build};
}

}  // namespace kvsim::analysis
