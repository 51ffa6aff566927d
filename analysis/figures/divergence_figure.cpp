// How long generated answers stay those of the full cache: survival before the first token that differs.
#include <algorithm>
#include <map>

#include "analysis/figures/answer_view.hpp"

namespace kvsim::analysis {
namespace {

/// Greedy answers of a policy: with how many tokens each agreed before it did not.
struct Survival {
  std::uint64_t answers = 0, longest = 0;
  std::vector<std::uint64_t>
      parted{};  ///< after so many tokens; answers that agree to their end are not in it

  double share_after(std::uint64_t tokens) const {
    const auto gone =
        std::count_if(parted.begin(), parted.end(), [&](std::uint64_t n) { return n < tokens; });
    return 1 - static_cast<double>(gone) / static_cast<double>(answers);
  }
};

std::map<std::string, Survival> survivals(const AnswerView& answers, const std::string& budget,
                                          const FigureChoice& choice) {
  std::map<std::string, Survival> out;
  const Records& rows = answers.all();
  const TableColumn at(rows, "budget"), mode(rows, "mode"), agreement(rows, "agreement"),
      tokens(rows, "tokens"), params(rows, "params"), workload(rows, "workload");
  for (std::size_t row = 0; row < rows.rows.size(); ++row) {
    const auto agreed = agreement.number(row), all = tokens.number(row);
    if (at.text(row) != budget || mode.text(row) != "greedy" || !agreed || !all) continue;
    if (!choice.workload.empty() && workload.text(row) != choice.workload) continue;
    Survival& survival = out[answers.label(params.text(row))];
    ++survival.answers;
    survival.longest = std::max(survival.longest, static_cast<std::uint64_t>(*all));
    if (*agreed < *all) survival.parted.push_back(static_cast<std::uint64_t>(*agreed));
  }
  return out;
}

std::vector<Figure> build(const FigureTables& tables, const FigureChoice& asked) {
  FigureChoice choice = asked;
  choice.trace.clear();  // shares are of items
  const std::vector<AnswerView> views = answer_views(tables, choice);
  std::vector<std::vector<std::string>> wanted;
  std::vector<std::map<std::string, Survival>> found;
  std::uint64_t longest = 0;
  for (const AnswerView& view : views) {
    const std::vector<std::string>& budgets = view.view().budgets();
    if (choice.budget.empty())
      choice.budget = budgets[(budgets.size() - 1) / 2];
    else
      known_name(choice.budget, budgets, "--budget");
    found.push_back(survivals(view, choice.budget, choice));
    if (found.back().empty()) continue;
    // By KL too where answers have none to be right about.
    wanted.push_back(NamedPolicies(view.view(), view.leading(), choice).labels());
    for (const auto& [label, survival] : found.back()) longest = std::max(longest, survival.longest);
  }
  const std::vector<std::string> named = names_in_turns(wanted);
  Figure figure;
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (found[i].empty()) continue;
    Chart chart{.x = {.label = "generated tokens", .whole = true},
                .y = {.label = "answers that still agree", .low = 0, .high = 1, .percent = true}};
    for (const bool shown : {true, false})
      for (const auto& [label, survival] : found[i]) {
        const auto place = std::find(named.begin(), named.end(), label);
        if ((place != named.end()) != shown || !views[i].view().policy(label).compared()) continue;
        Series& series = chart.series.emplace_back();
        series.label = label;
        if (shown) {
          series.colour = static_cast<int>(place - named.begin());
        } else {
          series.group = "other policies";
          series.weight = Weight::faint;
        }
        for (std::uint64_t n = 0; n <= longest; ++n)
          series.points.push_back({static_cast<double>(n), survival.share_after(n), {}, {}});
      }
    if (chart.series.empty()) continue;
    figure.panels.push_back({views[i].cut(), std::move(chart)});
    titles.push_back(short_meaning(views[i].cut()) + ", " +
                     std::to_string(distinct(views[i].all(), "item").size()) + " items");
  }
  if (figure.panels.empty()) return {};
  figure.data = figure_data(
      figure,
      {.panel = figure.panels.size() > 1 ? "cut" : "", .series = "policy", .x = "tokens", .y = "agree"});
  for (std::size_t i = 0; i < titles.size(); ++i) figure.panels[i].title = titles[i];
  figure.name = "divergence";
  figure.title = "Answers that still agree with the full cache's, " + at_budget(choice.budget);
  figure.reading =
      "Share of greedy answers whose first tokens all equal the full cache's; a curve that falls early "
      "belongs "
      "to a policy that soon says something else, right or wrong.";
  for (const AnswerView& view : views)
    if (figure.remark.empty()) figure.remark = view.remark(named);
  figure.command = plot_command("divergence", tables, choice);
  figure.columns = 2;
  return {std::move(figure)};
}

}  // namespace

FigureKind divergence_figure() {
  return {"divergence", "greedy answers that still agree with the full cache's, by tokens generated",
          "rows of kvsim evaluate, or the folder of a study with the closed loop, in mode both or greedy",
          build, kAnswersTable};
}

}  // namespace kvsim::analysis
