// Retained mass over measured steps: how much of each step's attention falls on
// what is still held.
#include <algorithm>
#include <map>
#include <set>

#include "analysis/figures/results_view.hpp"
#include "analysis/figures/trace_means.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// Means over traces and seeds, by step.
using Steps = std::map<double, RunningMean>;

std::vector<Point> points_of(const Steps& steps) {
  std::vector<Point> out;
  for (const auto& [step, mean] : steps) out.push_back({step, *mean.value(), {}, {}});
  return out;
}

/// The steps every trace has: a mean over fewer of them would be another one.
std::set<double> common_steps(const ResultsView& view, const std::vector<std::size_t>& rows) {
  std::map<std::string, std::set<double>> steps;
  for (const std::size_t row : rows)
    if (const auto step = view.step.number(row)) steps[view.trace.text(row)].insert(*step);
  std::set<double> common = steps.empty() ? std::set<double>{} : steps.begin()->second;
  for (const auto& of_trace : steps)
    std::erase_if(common, [&](double step) { return !of_trace.second.contains(step); });
  return common;
}

class Curves {
 public:
  Curves(const ResultsView& view, const std::vector<std::size_t>& rows, const NamedPolicies& named)
      : named_(named) {
    const TableColumn loss = view.metric("attention_loss"), oracle = view.metric("attention_loss_oracle");
    const std::set<double> common = common_steps(view, rows);
    for (const std::size_t row : rows) {
      traces_.insert(view.trace.text(row));
      const auto step = view.step.number(row), lost = loss.number(row), best = oracle.number(row);
      const bool shared = step && common.contains(*step);
      left_out_ = left_out_ || (step && !shared);
      const ResultsView::Policy& policy = view.policies()[view.policy_of(row)];
      if (!shared || !lost || policy.role != "policy") continue;
      curves_[policy.label][*step].add(1 - *lost);
      if (best) oracles_[policy.label][*step].add(1 - *best);
    }
  }

  Chart chart() const {
    Chart chart;
    chart.x = {.label = "measured step", .whole = true};
    chart.y = {.label = "retained mass (1 - attention loss)", .percent = true};
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
    if (!oracles_.empty())
      chart.series.push_back(
          {.label = "per-step oracle (own splits)", .weight = Weight::bound, .points = best_oracle()});
    return chart;
  }
  std::size_t traces() const { return traces_.size(); }
  bool left_out() const { return left_out_; }
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
  std::map<std::string, Steps> curves_, oracles_;
  std::set<std::string> traces_;
  bool left_out_ = false;
};

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& choice) {
  if (tables.results.rows.empty()) return {};
  const ResultsView view(tables.results);
  const std::vector<std::size_t> all = view.rows("step", choice);
  if (all.empty()) return {};
  FigureChoice made = choice;
  made.metric.clear();
  made.budget = view.one_budget(all, choice);
  const NamedPolicies named(view, leading_metric(tables), choice);
  const Curves curves(view, view.rows_at(made.budget, all), named);
  if (curves.empty()) return {};
  Figure figure;
  figure.name = "steps";
  figure.title = "Attention retained over measured steps, " + at_budget(made.budget) + ", " +
                 traces_text(curves.traces(), choice.workload);
  figure.reading =
      "The share of each step's attention that falls on tokens "
      "still held. Replay is open loop: a real "
      "run would have left the recorded one where this is low, "
      "and a falling curve says from when on. Step 0 is the last "
      "prompt token, asked once more.";
  figure.remark = named.remark();
  if (curves.left_out())
    figure.remark +=
        (figure.remark.empty() ? "" : " ") + std::string("Steps that only some traces have are left out.");
  figure.command = plot_command("steps", tables, made);
  figure.panels.push_back({"", curves.chart()});
  figure.data = figure_data(figure, {.series = "policy", .x = "step", .y = "retained_mass"});
  return {std::move(figure)};
}

}  // namespace

FigureKind steps_figure() {
  return {"steps", "attention retained over measured steps, by policy",
          "results of scope step (kvsim replay --per step)", build};
}

}  // namespace kvsim::analysis
