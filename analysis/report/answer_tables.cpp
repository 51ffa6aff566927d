#include "analysis/report/answer_tables.hpp"

#include <algorithm>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/answer_statistics.hpp"
#include "sim/base/byte_text.hpp"

namespace kvsim::analysis {
namespace {

using Cell = SortableTable::Cell;

Cell number_cell(const Metric& metric, const std::optional<double>& value) {
  if (!value) return {.shown = "\u2013"};
  const bool bytes = std::string_view(metric.unit) == "bytes";
  return {.shown = bytes ? bytes_text(static_cast<std::uint64_t>(*value)) : value_text(metric, *value),
          .order = exact_text(*value)};
}

}  // namespace

SortableTable answers_beside_losses(const AnswerEvidence& answers, const std::string& budget) {
  SortableTable table;
  const std::vector<AnsweredPolicy>& all = answers.policies(budget);
  if (all.empty()) return table;
  const Metric &leading = *answers.metric(), &kl = answer_metric("kl");
  table.caption = "Budget " + budget_text(budget) + ", mean over " +
                  count_text(all.front().leading.traces, "item") + "; " +
                  cut_title(answers.statistics().cut());
  table.columns = {{"policy"}, {leading.label, leading.meaning, true}};
  const Metric& kept = answer_metric("kept");
  const bool beside = std::any_of(all.begin(), all.end(), [](const auto& each) { return each.kept; });
  if (beside) table.columns.push_back({"kept", kept.meaning, true});
  if (&leading != &kl) table.columns.push_back({"KL (nats)", kl.meaning, true});
  const std::vector<const Metric*>& open = AnswerEvidence::open_measures();
  std::vector<std::size_t> shown;  // of them
  for (std::size_t i = 0; i < open.size(); ++i)
    for (const AnsweredPolicy& each : all)
      if (each.open[i]) {
        shown.push_back(i);
        break;
      }
  for (const std::size_t i : shown)
    table.columns.push_back(
        {open[i]->label != nullptr ? open[i]->label : "held after the prompt", open[i]->meaning, true});
  const double best = all.front().leading.mean;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const PolicyMean& mean = all[i].leading;
    std::vector<Cell>& row = table.rows.emplace_back();
    row.push_back({.shown = mean.policy});
    row.push_back({.shown = value_text(leading, mean.mean),
                   .order = exact_text(mean.mean),
                   .small = mean.low && mean.high ? interval_text(leading, mean.low, mean.high) : "",
                   .marked = i < answers.compared(budget) && mean.mean == best});
    if (beside) {
      Cell& cell =
          row.emplace_back(all[i].kept ? number_cell(kept, all[i].kept->mean) : number_cell(kept, {}));
      if (all[i].kept) cell.small = interval_text(kept, all[i].kept->low, all[i].kept->high);
    }
    if (&leading != &kl) row.push_back(number_cell(kl, all[i].kl));
    for (const std::size_t measure : shown) row.push_back(number_cell(*open[measure], all[i].open[measure]));
  }
  return table;
}

}  // namespace kvsim::analysis
