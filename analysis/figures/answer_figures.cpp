// Answers of a model through a policy's cache: how many are right, and how long they stay those of the full
// cache; a panel per cut.
#include <algorithm>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/figures/figure_rows.hpp"
#include "analysis/results/records.hpp"
#include "analysis/statistics/full_cache_gate.hpp"

namespace kvsim::analysis {
namespace {

/// Curves of one cut, from the means and their intervals.
struct AccuracyCurves {
  std::map<std::string, Series> of{};
  std::uint64_t items = 0;
  bool levels = false;  ///< whether some policy decides by itself how much it keeps
};

AccuracyCurves accuracy_curves(const AnswersAtCut& answers, const Records& means, const FigureChoice& choice,
                               const Metric& metric) {
  AccuracyCurves curves;
  const Where where = {{"metric", metric.key}, {"cut", answers.cut}, {"workload", one_workload(choice)}};
  for (const Statistic& mean : statistics_where(means, where, "mean")) {
    const bool own_budget = mean.role == "own_budget";
    if (own_budget && !is_compared(mean.policy, mean.role)) continue;
    Series& series = curves.of[mean.policy];
    series.label = mean.policy;
    const Point point = {answers.view.place(mean.budget), mean.value, mean.low, mean.high};
    if (!own_budget)
      series.points.push_back(point);
    else if (series.points.empty())  // the same at every budget
      series.points = answers.view.level(point);
    curves.levels = curves.levels || own_budget;
    curves.items = std::max(curves.items, mean.traces);
  }
  for (auto& [label, series] : curves.of) sort_points(series);
  return curves;
}

/// Share of the items of these curves that the full cache answers right.
std::optional<double> full_accuracy(const AnswersAtCut& answers, const FigureChoice& choice) {
  FullAnswers all;
  for (const FullAnswers& each : full_answers(answers.ranked)) {
    if (!choice.workload.empty() && each.workload != choice.workload) continue;
    all.asked += each.asked;
    all.right += each.right;
  }
  return all.asked == 0 ? std::nullopt : std::optional<double>(all.share());
}

/// Accuracy of answers against budget: a curve per policy, and the full cache as a line.
std::vector<Figure> accuracy(const FigureTables& tables, FigureChoice& choice) {
  const Records* means = tables.find("means");
  if (means == nullptr) return {};
  // Where no workload is ranked by right answers, by those that are kept, of enough items.
  const bool right = !rows_where(*means, {{"metric", "right"}}).empty();
  const Metric& metric = answer_metric(right ? "right" : "kept");
  choice.trace.clear();  // means are over items
  const std::vector<AnswersAtCut> cuts = answers_at_cuts(tables, choice);
  std::vector<std::vector<std::string>> wanted;
  std::vector<AccuracyCurves> curves;
  for (const AnswersAtCut& answers : cuts) {
    curves.push_back(accuracy_curves(answers, *means, choice, metric));
    if (!right && curves.back().items < kLeastAnswered) curves.back() = {};
    if (!curves.back().of.empty())
      wanted.push_back(NamedPolicies(answers.view, answers.leading(), choice).labels);
  }
  const std::vector<std::string> named = names_in_turns(wanted);
  Figure figure{.columns = 2};
  std::uint64_t items = 0;
  bool levels = false;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (figure.remark.empty()) figure.remark = cuts[i].remark(named);
    if (curves[i].of.empty()) continue;
    Chart chart{
        .x = cuts[i].view.budget_axis(),
        .y = {.label = right ? "items answered right" : metric.label, .low = 0, .high = 1, .percent = true}};
    add_curves(chart, curves[i].of, named);
    if (const auto full = full_accuracy(cuts[i], choice))
      chart.series.push_back({.label = "full",
                              .weight = Weight::bound,
                              .points = cuts[i].view.level({0, *full, {}, {}}),
                              .group = "full cache"});
    figure.panels.push_back({short_meaning(cuts[i].cut), std::move(chart), cuts[i].cut});
    items = std::max(items, curves[i].items);
    levels = levels || curves[i].levels;
  }
  if (figure.panels.empty()) return {};
  figure.title = std::string(right ? "Items answered right" : "Answers kept") +
                 " against budget, mean over " + std::to_string(items) + " items" +
                 (choice.workload.empty() ? "" : " of " + choice.workload);
  figure.reading =
      std::string(
          "Higher is better. A curve is a policy, its band or bars the intervals of its mean over items") +
      (right ? "; the dashed line is the full cache. Only workloads that the full cache answers well enough "
               "count."
             : ". Only items that the full cache answers right count.");
  if (levels)
    add_sentence(figure.reading,
                 "A level line is a policy that keeps as much at every budget, such as all tokens.");
  // Whether questions are asked about the same context; studies of older versions do not say.
  const Records& answers = *tables.find(kAnswersTable);
  if (has_column(answers, "turn") && distinct(answers, "turn").size() > 1)
    add_sentence(figure.remark, "Questions about one context count as items of their own.");
  figure.data = figure_data(
      figure,
      {.panel = figure.panels.size() > 1 ? "cut" : "", .series = "policy", .x = "budget", .y = metric.key});
  return {std::move(figure)};
}

/// Greedy answers of a policy: with how many tokens each agreed before it did not.
struct Survival {
  std::uint64_t answers = 0, longest = 0;
  std::vector<std::uint64_t>
      parted{};  ///< after so many tokens; answers that agree to their end are not in it

  double share_after(std::uint64_t tokens) const {
    const auto gone = std::ranges::count_if(parted, [&](std::uint64_t n) { return n < tokens; });
    return 1 - static_cast<double>(gone) / static_cast<double>(answers);
  }
};

std::map<std::string, Survival> survivals(const AnswersAtCut& answers, const FigureChoice& choice) {
  std::map<std::string, Survival> out;
  const Records& rows = answers.all;
  const TableColumn at(rows, "budget"), mode(rows, "mode"), agreement(rows, "agreement"),
      tokens(rows, "tokens"), params(rows, "params"), workload(rows, "workload");
  for (std::size_t row = 0; row < rows.rows.size(); ++row) {
    const auto agreed = agreement.number(row), all = tokens.number(row);
    if (at.text(row) != choice.budget || mode.text(row) != "greedy" || !agreed || !all) continue;
    if (!choice.workload.empty() && workload.text(row) != choice.workload) continue;
    Survival& survival = out[answers.labels.at(params.text(row))];
    ++survival.answers;
    survival.longest = std::max(survival.longest, static_cast<std::uint64_t>(*all));
    if (*agreed < *all) survival.parted.push_back(static_cast<std::uint64_t>(*agreed));
  }
  return out;
}

/// How long generated answers stay those of the full cache: survival before the first token that differs.
std::vector<Figure> divergence(const FigureTables& tables, FigureChoice& choice) {
  choice.trace.clear();  // shares are of items
  const std::vector<AnswersAtCut> cuts = answers_at_cuts(tables, choice);
  std::vector<std::vector<std::string>> wanted;
  std::vector<std::map<std::string, Survival>> found;
  std::uint64_t longest = 0;
  for (const AnswersAtCut& answers : cuts) {
    const std::vector<std::string>& budgets = answers.view.budgets();
    if (choice.budget.empty()) choice.budget = budgets[(budgets.size() - 1) / 2];
    known_name(choice.budget, budgets, "--budget");
    found.push_back(survivals(answers, choice));
    if (found.back().empty()) continue;
    // By KL too where answers have none to be right about.
    wanted.push_back(NamedPolicies(answers.view, answers.leading(), choice).labels);
    for (const auto& [label, survival] : found.back()) longest = std::max(longest, survival.longest);
  }
  const std::vector<std::string> named = names_in_turns(wanted);
  Figure figure{.title = "Answers that still agree with the full cache's, " + at_budget(choice.budget),
                .reading =
                    "Share of greedy answers whose first tokens all equal the full cache's; a curve that "
                    "falls early belongs to a policy that soon says something else, right or wrong.",
                .columns = 2};
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (figure.remark.empty()) figure.remark = cuts[i].remark(named);
    Chart chart{.x = {.label = "generated tokens", .whole = true},
                .y = {.label = "answers that still agree", .low = 0, .high = 1, .percent = true}};
    for (const bool shown : {true, false})
      for (const auto& [label, survival] : found[i]) {
        if ((place_in(named, label) >= 0) != shown || !cuts[i].view.policy(label).compared()) continue;
        Series& series = chart.series.emplace_back(Series{.label = label, .policy = label});
        if (!shown) {
          series.group = "other policies";
          series.weight = Weight::faint;
        }
        for (std::uint64_t n = 0; n <= longest; ++n)
          series.points.push_back({static_cast<double>(n), survival.share_after(n), {}, {}});
      }
    if (chart.series.empty()) continue;
    const std::size_t items = distinct(cuts[i].all, "item").size();
    figure.panels.push_back({short_meaning(cuts[i].cut) + ", " + std::to_string(items) + " items",
                             std::move(chart), cuts[i].cut});
  }
  if (figure.panels.empty()) return {};
  return {std::move(figure)};
}

}  // namespace

std::vector<FigureKind> answer_figures() {
  return {
      {.name = "accuracy",
       .summary = "items answered right against budget, a curve per policy, and the full cache",
       .needs = "greedy answers of a workload that the full cache answers: rows of kvsim evaluate, or the "
                "folder of a study with the closed loop (\"loops\": [\"open\", \"closed\"])",
       .draw = accuracy,
       .table = kAnswersTable},
      {.name = "divergence",
       .summary = "greedy answers that still agree with the full cache's, by tokens generated",
       .needs =
           "rows of kvsim evaluate, or the folder of a study with the closed loop, in mode both or greedy",
       .draw = divergence,
       .table = kAnswersTable,
       .data = {.panel = "cut", .series = "policy", .x = "tokens", .y = "agree"}}};
}

}  // namespace kvsim::analysis
