#include "analysis/report/budget_tables.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/drawing/figure_text.hpp"
#include "analysis/report/wording.hpp"
#include "analysis/results/cuts.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

using Cell = SortableTable::Cell;

/// Cells gathered column by column, in any order of policies.
class ByBudget {
 public:
  explicit ByBudget(std::string caption) { table_.caption = std::move(caption); }

  void start_column(const std::string& heading) { columns_.push_back(heading); }

  struct Placed {
    std::size_t column;
    Cell cell;
    double place;
  };
  struct Line {
    std::string policy, params, role;
    std::vector<Placed> cells{};
  };
  /// `place`: smaller is better; that in the middle column sorts the lines.
  void add(const std::string& policy, const std::string& params, const std::string& role, Cell cell,
           double place) {
    auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.params == params; });
    if (line == lines_.end()) line = lines_.insert(lines_.end(), {policy, params, role});
    line->cells.push_back({columns_.size() - 1, std::move(cell), place});
  }

  SortableTable make() && {
    if (lines_.empty()) return {};
    const std::size_t middle = (columns_.size() - 1) / 2;
    const auto place_of = [&](const Line& line) {
      for (const Placed& each : line.cells)
        if (each.column == middle) return each.place;
      return std::numeric_limits<double>::infinity();
    };
    std::stable_sort(lines_.begin(), lines_.end(),
                     [&](const Line& a, const Line& b) { return place_of(a) < place_of(b); });
    table_.columns = {{"policy",
                       "oracle: knows the future, a bound at its own split of the budget; own_budget: keeps "
                       "what it likes"}};
    for (const std::string& heading : columns_) table_.columns.push_back({heading, "budget", true});
    for (const Line& line : lines_) {
      std::vector<Cell>& row = table_.rows.emplace_back(columns_.size() + 1, Cell{.shown = "\u2013"});
      row[0] = {.shown = line.policy, .small = line.role == "policy" ? "" : line.role};
      for (const Placed& each : line.cells) row[each.column + 1] = each.cell;
    }
    return std::move(table_);
  }

 private:
  SortableTable table_;
  std::vector<std::string> columns_;  ///< their headings
  std::vector<Line> lines_;
};

std::string range_text(const Metric& metric, const std::optional<double>& low,
                       const std::optional<double>& high) {
  return low && high ? interval_text(metric, low, high) : "";
}

}  // namespace

namespace {

/// ", cut question: question not known to the policy".
std::string cut_suffix(const Evidence& evidence) {
  return evidence.cut().empty() ? "" : "; " + cut_title(evidence.cut());
}

void add_means(ByBudget& table, const Evidence& evidence, const Metric& metric, const Question& question) {
  const std::vector<PolicyMean> ranked = contest(evidence, question, metric);
  for (const PolicyMean& each : evidence.means(question)) {
    const bool best = metric.better != Better::neither && ranked.size() > 1 && each.role == "policy" &&
                      each.mean == ranked.front().mean && each.traces == ranked.front().traces;
    table.add(each.policy, each.params, each.role,
              {.shown = value_text(metric, each.mean),
               .order = exact_text(each.mean),
               .small = range_text(metric, each.low, each.high),
               .marked = best},
              metric.better == Better::higher ? -each.mean : each.mean);
  }
}

}  // namespace

SortableTable means_by_budget(const Evidence& evidence, const Metric& metric, const std::string& workload) {
  ByBudget table(
      capitalised(metric.label) + ", mean over " +
      (workload == kAllWorkloads ? std::string("all traces") : "traces of " + quoted_name(workload)) +
      " and its interval" + cut_suffix(evidence));
  for (const std::string& budget : evidence.budgets()) {
    const Question question{metric.key, workload, budget};
    if (evidence.means(question).empty()) continue;
    table.start_column(budget_text(budget));
    add_means(table, evidence, metric, question);
  }
  return std::move(table).make();
}

SortableTable means_by_cut(const std::vector<Evidence>& cuts, const Metric& metric) {
  std::vector<std::string> meanings;
  for (const Evidence& each : cuts) meanings.push_back(cut_title(each.cut()));
  ByBudget table(capitalised(metric.label) + ", mean over all traces and its interval; " +
                 joined(meanings, "; "));
  if (cuts.empty()) return {};
  for (const std::string& budget : cuts.front().budgets()) {
    for (const Evidence& each : cuts) {
      const Question question{metric.key, kAllWorkloads, budget};
      if (each.means(question).empty()) continue;
      table.start_column(budget_text(budget) + ", cut " + each.cut());
      add_means(table, each, metric, question);
    }
  }
  return std::move(table).make();
}

SortableTable ranks_by_budget(const Evidence& evidence, const Metric& metric) {
  ByBudget table("Rank by mean " + std::string(metric.label) + " over all traces, and its interval" +
                 cut_suffix(evidence));
  for (const std::string& budget : evidence.budgets()) {
    const std::vector<PolicyRank>& ranks = evidence.ranks({metric.key, kAllWorkloads, budget});
    if (ranks.empty()) continue;
    table.start_column(budget_text(budget));
    for (const PolicyRank& each : ranks)
      table.add(
          each.policy, each.params, "policy",
          {.shown = rounded_text(each.rank, 1),
           .order = exact_text(each.rank),
           .small =
               each.low && each.high ? rounded_text(*each.low, 1) + " to " + rounded_text(*each.high, 1) : "",
           .marked = each.rank == 1},
          each.rank);
  }
  return std::move(table).make();
}

SortableTable differences_by_budget(const Evidence& evidence, const Metric& metric) {
  ByBudget table(
      "Difference in " + std::string(metric.label) +
      " to the best policy of the budget, its interval, and on how many traces the policy is worse; "
      "\u2248: not distinguishable from the best" +
      cut_suffix(evidence));
  for (const std::string& budget : evidence.budgets()) {
    const Question question{metric.key, kAllWorkloads, budget};
    const std::vector<PolicyMean> ranked = contest(evidence, question, metric);
    if (ranked.size() < 2) continue;
    table.start_column(budget_text(budget));
    const PolicyMean& best = ranked.front();
    for (const PolicyMean& each : ranked) {
      if (each.params == best.params) {
        table.add(each.policy, each.params, each.role,
                  {.shown = "best", .order = "0", .small = "", .marked = true}, -1);
        continue;
      }
      const auto behind = evidence.difference(question, each.params, best.params);
      if (!behind) continue;
      const std::string range = behind->low && behind->high
                                    ? difference_interval_text(metric, *behind->low, *behind->high) + "; "
                                    : "";
      table.add(
          each.policy, each.params, each.role,
          {.shown =
               (behind->distinguishable() ? "" : "\u2248 ") + difference_text(metric, behind->difference),
           .order = exact_text(behind->difference),
           .small = range + std::to_string(behind->worse) + "\u00a0of\u00a0" + std::to_string(behind->traces),
           .marked = false},
          std::abs(behind->difference));
    }
  }
  return std::move(table).make();
}

}  // namespace kvsim::analysis
