// Accuracy of answers against budget: a curve per policy, and the full cache as a line.
#include <algorithm>
#include <map>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/figures/answer_view.hpp"
#include "analysis/figures/chart_parts.hpp"
#include "analysis/results/has_column.hpp"
#include "analysis/statistics/full_cache_gate.hpp"
#include "analysis/statistics/running_mean.hpp"

namespace kvsim::analysis {
namespace {

/// right; where no workload is ranked by it, kept, of enough items.
const Metric& metric_of(const Records& means) {
  return answer_metric(rows_where(means, {{"metric", "right"}}).empty() ? "kept" : "right");
}

/// Curves of one cut, from the means and their intervals.
class AccuracyCurves {
 public:
  AccuracyCurves(const AnswerView& answers, const Records& means, const FigureChoice& choice)
      : answers_(answers), choice_(choice), metric_(metric_of(means)) {
    const TableColumn budget(means, "budget"), policy(means, "policy"), role(means, "role"),
        traces(means, "traces"), mean(means, "mean"), low(means, "low"), high(means, "high");
    for (const std::size_t row : rows_where(
             means, {{"metric", metric_.key}, {"cut", answers.cut()}, {"workload", one_workload(choice)}})) {
      if (role.text(row) == "own_budget" && !is_compared(policy.text(row), role.text(row))) continue;
      Series& series = curves_[policy.text(row)];
      series.label = policy.text(row);
      const Point point = {answers.view().place(budget.text(row)), mean.number(row).value_or(0),
                           low.number(row), high.number(row)};
      if (role.text(row) != "own_budget")
        series.points.push_back(point);
      else if (series.points.empty())  // the same at every budget
        series.points = answers.view().level(point);
      levels_ = levels_ || role.text(row) == "own_budget";
      items_ = std::max(items_, static_cast<std::uint64_t>(traces.number(row).value_or(0)));
    }
    if (&metric_ == &answer_metric("kept") && items_ < kLeastAnswered) curves_.clear();
    for (auto& [label, series] : curves_)
      std::sort(series.points.begin(), series.points.end(),
                [](const Point& a, const Point& b) { return a.x < b.x; });
  }

  bool empty() const { return curves_.empty(); }
  std::uint64_t items() const { return items_; }
  bool levels() const { return levels_; }

  Chart chart(const std::vector<std::string>& named) const {
    Chart chart{.x = answers_.view().budget_axis(),
                .y = {.label = y_label(), .low = 0, .high = 1, .percent = true}};
    for (std::size_t i = 0; i < named.size(); ++i) {
      const auto found = curves_.find(named[i]);
      if (found == curves_.end()) continue;
      chart.series.push_back(found->second);
      chart.series.back().colour = static_cast<int>(i);
    }
    for (const auto& [label, series] : curves_) {
      if (std::find(named.begin(), named.end(), label) != named.end()) continue;
      chart.series.push_back(series);
      chart.series.back().group = "other policies";
      chart.series.back().weight = Weight::faint;
    }
    if (const auto full = full_accuracy_of()) chart.series.push_back(line_of_full(*full));
    return chart;
  }

 private:
  std::string y_label() const {
    return std::string_view(metric_.key) == "right" ? "items answered right" : metric_.label;
  }
  /// Share of the items of these curves that the full cache answers right.
  std::optional<double> full_accuracy_of() const {
    FullAnswers all;
    for (const FullAnswers& each : full_answers(answers_.ranked())) {
      if (!choice_.workload.empty() && each.workload != choice_.workload) continue;
      all.asked += each.asked;
      all.right += each.right;
    }
    if (all.asked == 0) return {};
    return all.share();
  }

  Series line_of_full(double accuracy) const {
    return {.label = "full",
            .weight = Weight::bound,
            .points = answers_.view().level({0, accuracy, {}, {}}),
            .group = "full cache"};
  }

  const AnswerView& answers_;
  const FigureChoice& choice_;
  const Metric& metric_;
  std::map<std::string, Series> curves_{};
  std::uint64_t items_ = 0;
  bool levels_ = false;
};

/// Whether questions are asked about the same context; studies of older versions do not say.
bool several_turns(const Records& answers) {
  return has_column(answers, "turn") && distinct(answers, "turn").size() > 1;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& asked) {
  const Records* means = tables.find("means");
  if (means == nullptr) return {};
  const Metric& metric = metric_of(*means);
  FigureChoice choice = asked;
  choice.trace.clear();  // means are over items
  const std::vector<AnswerView> views = answer_views(tables, choice);
  std::vector<std::vector<std::string>> wanted;
  std::vector<AccuracyCurves> curves;
  for (const AnswerView& view : views) {
    curves.emplace_back(view, *means, choice);
    if (curves.back().empty()) continue;
    wanted.push_back(NamedPolicies(view.view(), view.leading(), choice).labels());
  }
  const std::vector<std::string> named = names_in_turns(wanted);
  Figure figure;
  std::uint64_t items = 0;
  bool levels = false;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (curves[i].empty()) continue;
    figure.panels.push_back({views[i].cut(), curves[i].chart(named)});
    items = std::max(items, curves[i].items());
    levels = levels || curves[i].levels();
  }
  if (figure.panels.empty()) return {};
  figure.data = figure_data(
      figure,
      {.panel = figure.panels.size() > 1 ? "cut" : "", .series = "policy", .x = "budget", .y = metric.key});
  for (Panel& panel : figure.panels) panel.title = short_meaning(panel.title);
  figure.name = "accuracy";
  const bool right = std::string_view(metric.key) == "right";
  figure.title = std::string(right ? "Items answered right" : "Answers kept") +
                 " against budget, mean over " + std::to_string(items) + " items" +
                 (choice.workload.empty() ? "" : " of " + choice.workload);
  figure.reading =
      std::string("Higher is better. A curve is a policy, its band the interval of its mean over items") +
      (right ? "; the dashed line is the full cache. Only workloads that the full cache answers well enough "
               "count."
             : ". Only items that the full cache answers right count.");
  if (levels)
    figure.reading += " A level line is a policy that keeps as much at every budget, such as all tokens.";
  for (const AnswerView& view : views)
    if (figure.remark.empty()) figure.remark = view.remark(named);
  if (several_turns(*tables.find(kAnswersTable)))
    figure.remark += std::string(figure.remark.empty() ? "" : " ") +
                     "Questions about one context count as items of their own.";
  figure.command = plot_command("accuracy", tables, choice);
  figure.columns = 2;
  return {std::move(figure)};
}

}  // namespace

FigureKind accuracy_figure() {
  return {
      "accuracy", "items answered right against budget, a curve per policy, and the full cache",
      "greedy answers of a workload that the full cache answers: rows of kvsim evaluate, or the folder of a "
      "study with the closed loop (\"loops\": [\"open\", \"closed\"])",
      build, kAnswersTable};
}

}  // namespace kvsim::analysis
