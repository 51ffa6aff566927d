#pragma once
/// Result rows as figures ask for them: by policy label, budget and trace.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/figures/figure_kind.hpp"
#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {

/// A column of a table, found once. A table without rows needs no such column.
class TableColumn {
 public:
  TableColumn(const Records& table, std::string_view key)
      : table_(&table), column_(table.rows.empty() ? 0 : table.column(key)) {}
  std::optional<double> number(std::size_t row) const { return analysis::number(table_->rows[row][column_]); }
  /// Rounded down; 0: undefined.
  std::uint64_t count(std::size_t row) const { return static_cast<std::uint64_t>(number(row).value_or(0)); }
  /// Empty: undefined.
  const std::string& text(std::size_t row) const;

 private:
  const Records* table_;
  std::size_t column_;
};

/// Rows whose text columns say what is asked.
using Where = std::vector<std::pair<const char*, std::string>>;
std::vector<std::size_t> rows_where(const Records& table, const Where& wanted);

/// Whether figures compare a policy with others: all but oracles and the full cache itself. What decides by
/// itself how much it keeps is compared, too: to store everything in fewer bits, or to read a part of it, is
/// a choice as eviction is.
bool is_compared(const std::string& label, const std::string& role);

class ResultsView {
 public:
  /// `results` must outlive this.
  explicit ResultsView(const Records& results)
      : ResultsView(std::shared_ptr<const Records>(std::shared_ptr<const Records>(), &results)) {}
  explicit ResultsView(Records&& results)
      : ResultsView(std::make_shared<const Records>(std::move(results))) {}

  struct Policy {
    std::string label, role;
    bool stores_all = false;  ///< the full cache, whatever is made of its numbers or read of them
    bool compared() const { return is_compared(label, role); }
  };
  const std::vector<Policy>& policies() const { return policies_; }  ///< in order of appearance
  /// Throws Error(usage) with the nearest names for one that is not there.
  const Policy& policy(const std::string& label) const;
  const Policy& policy_of(std::size_t row) const { return policies_[policy_of_[row]]; }

  /// Smallest first. Shares of the prompt when all are given as percent, else tokens per lane.
  const std::vector<std::string>& budgets() const { return budgets_; }
  double place(const std::string& name) const { return places_.at(name); }
  Axis budget_axis() const;
  /// What a lane keeps whose budget is its own, on the same axis.
  std::optional<double> own_place(std::size_t row) const;
  /// `value` at every budget: the ends of a level line, or one point where there is one budget.
  std::vector<Point> level(const Point& value) const;

  /// Rows of a scope, of the chosen workload and trace.
  std::vector<std::size_t> rows(const std::string& scope, const FigureChoice& choice) const;
  /// Those of `rows` at a budget.
  std::vector<std::size_t> rows_at(const std::string& budget, const std::vector<std::size_t>& rows) const;
  /// Those of a scope at the budget chosen; if none is, at the middle one of those in the rows, which then is
  /// the choice.
  std::vector<std::size_t> rows_at_one_budget(const std::string& scope, FigureChoice& choice) const;

  /// Those of `rows` on traces where some policy has a value: not every trace marks evidence.
  std::vector<std::size_t> rows_with(const std::vector<std::size_t>& rows, const TableColumn& field) const;
  /// Mean over rows_with() (traces and seeds) of each policy; nothing where one has no value.
  std::vector<std::optional<double>> means(const std::vector<std::size_t>& rows,
                                           const TableColumn& field) const;
  /// How many traces the rows are of.
  std::size_t traces(const std::vector<std::size_t>& rows) const;

 private:
  explicit ResultsView(std::shared_ptr<const Records> results);

  std::shared_ptr<const Records> results_;

 public:
  const TableColumn budget, trace, workload, scope, layer, head, step, kept_tokens, budget_tokens;
  TableColumn metric(std::string_view key) const { return {*results_, key}; }

 private:
  std::vector<Policy> policies_{};
  std::vector<std::size_t> policy_of_{};
  std::vector<std::string> budgets_{};
  std::map<std::string, double> places_{};
  bool shares_ = true;
};

/// The first of leading_metrics() that the means have, or without means the results; attention loss if none.
const Metric& leading_metric(const FigureTables& tables);
/// `other` where more of the rows have it than `first`, as where numbers are stored otherwise.
const Metric& more_defined(const ResultsView& view, const std::vector<std::size_t>& rows, const Metric& first,
                           const Metric& other);
/// The metric chosen, else the one that leads, which then is the choice.
const Metric& one_metric(const FigureTables& tables, FigureChoice& choice);
/// "attention loss (%)" or with its unit.
Axis metric_axis(const Metric& metric);
/// The workload chosen, or "all".
std::string one_workload(const FigureChoice& choice);
/// "of a budget of 20%".
std::string at_budget(const std::string& budget);

/// Those that every reader looks for among many: they have a name in figures, however well they do.
const std::set<std::string>& well_known_policies();

/// Which policies get a name and a colour where all of them would be too many. A choice is taken as it is.
/// Otherwise all of up to eight; else the five that come nearest to the best, on average over the budgets
/// they have a value at, and well-known ones. Those without a value come
/// last.
struct NamedPolicies {
  /// By the means of `metric` over the results, of scope all where they have it.
  NamedPolicies(const ResultsView& view, const Metric& metric, const FigureChoice& choice);

  /// The rule, for the figure's remark; empty when all are named.
  std::string remark() const;

  std::vector<std::string> labels{};  ///< best first
  std::size_t others = 0;             ///< how many policies are not named
  bool chosen = false;
};

/// Names and colours for several panels: those that each would name, in turns, up to eight.
std::vector<std::string> names_in_turns(const std::vector<std::vector<std::string>>& wanted);
/// "Grey: the 3 other policies."; empty: there is none.
std::string grey_remark(std::size_t others);
/// What a cut means, as short as a panel's title must be; nothing for no cut.
std::string short_meaning(const std::string& cut);

}  // namespace kvsim::analysis
